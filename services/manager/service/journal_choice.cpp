#include "services/manager/service/journal_choice.hpp"

#include <chrono>
#include <memory>
#include <string_view>
#include <utility>

#include "services/manager/store/memory_journal.hpp"
#include "services/manager/store/redis_journal.hpp"
#include "services/manager/store/rocks_journal.hpp"
#include "transport/redis/server_url.hpp"

namespace cenote::manager {

namespace {

constexpr std::string_view rocks_name = "rocksdb";
constexpr std::string_view folder_prefix = "rocksdb:";

template <class Journal>
result<std::unique_ptr<journal>> as_journal(result<std::unique_ptr<Journal>> opened) {
  if (!opened) return std::unexpected(opened.error());
  return std::unique_ptr<journal>(std::move(*opened));
}

journal_opener rocks_opener_of(const config::manager_section& settings, const std::string& state_dir) {
  const bool has_folder = settings.store.starts_with(folder_prefix);
  const rocks_options options{
      .folder = has_folder ? settings.store.substr(folder_prefix.size()) : state_dir + "/journal",
      .is_synchronous = settings.store_sync,
      .cache_bytes = settings.store_cache};
  return [options](const std::stop_token&) { return as_journal(rocks_journal::open(options)); };
}

result<journal_opener> redis_opener_of(const config::manager_section& settings) {
  const auto url = redis::parse_server_url(settings.store);
  if (!url) return fail(error_code::invalid_config, "manager.store: " + url.error().message());
  if (url->servers.size() != 1) {
    return fail(error_code::invalid_config,
                "manager.store: a journal lies on one server; " + std::to_string(url->servers.size()) + " are named");
  }
  redis_journal_options options{
      .access = {.address = url->servers.front(),
                 .user = url->user,
                 .credentials = settings.store_auth_file,
                 .database = url->database,
                 .tls = url->tls},
      .prefix = url->prefix + ":manager:" + settings.id,
      .timeout = std::chrono::duration_cast<std::chrono::milliseconds>(settings.store_timeout)};
  if (!settings.store_auth_file.empty()) {
    if (auto read = redis::read_credentials(settings.store_auth_file, url->user); !read) {
      return fail(error_code::invalid_config, "manager.store_auth_file: " + read.error().message());
    }
  }
  if (auto made = redis::make_stream(url->tls, url->servers.front().place.host); !made) {
    return fail(error_code::invalid_config, "manager.store: " + made.error().message());
  }
  return [options](const std::stop_token& stop) {
    redis_journal_options own = options;
    own.stop = stop;
    return as_journal(redis_journal::make(std::move(own)));
  };
}

}  // namespace

result<journal_opener> journal_opener_of(const config::manager_section& settings, const std::string& state_dir) {
  if (settings.store.starts_with(rocks_name)) return rocks_opener_of(settings, state_dir);
  if (settings.store != "memory") return redis_opener_of(settings);
  return [](const std::stop_token&) { return result<std::unique_ptr<journal>>(std::make_unique<memory_journal>()); };
}

}  // namespace cenote::manager
