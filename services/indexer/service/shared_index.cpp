#include "services/indexer/service/shared_index.hpp"

#include <string>
#include <utility>

namespace cenote::indexer {

namespace {

result<redis::server_access> access_of(const config::index_section& settings) {
  auto url = redis::parse_server_url(settings.url);
  if (!url) return fail(error_code::invalid_config, "index.url: " + url.error().message());
  if (url->servers.size() != 1) {
    return fail(error_code::invalid_config,
                "index.url: an index lies on one server; " + std::to_string(url->servers.size()) + " are named");
  }
  if (url->prefix != redis::server_url().prefix) {
    return fail(error_code::invalid_config,
                "index.url: keys of an index have no prefix, as llm-d's; right would be a database of its own, /1");
  }
  redis::server_access access{.address = url->servers.front(),
                              .user = url->user,
                              .credentials = settings.auth_file,
                              .database = url->database,
                              .tls = url->tls};
  if (auto made = redis::make_stream(access.tls, access.address.place.host); !made) {
    return fail(error_code::invalid_config, "index.url: " + made.error().message());
  }
  if (access.credentials.empty()) return access;
  if (auto read = redis::read_credentials(access.credentials, access.user); !read) {
    return fail(error_code::invalid_config, "index.auth_file: " + read.error().message());
  }
  return access;
}

}  // namespace

result<std::unique_ptr<shared_index>> shared_index::open(const config::index_section& settings,
                                                         const token_processor& keys) {
  auto access = access_of(settings);
  if (!access) return std::unexpected(access.error());
  std::unique_ptr<shared_index> made(new shared_index(std::move(*access), keys, settings.block_tokens));
  auto writer =
      shared_writer::start(made->access_, keys, {.block_tokens = settings.block_tokens, .memory = settings.memory},
                           made->facts_, made->counters_);
  if (!writer) return std::unexpected(writer.error());
  made->writer_ = std::move(*writer);
  return made;
}

}  // namespace cenote::indexer
