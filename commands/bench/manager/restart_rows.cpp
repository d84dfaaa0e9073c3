// Restarts with all that was written, from RocksDB and from Redis.
#include <memory>
#include <stop_token>
#include <string>

#include "commands/bench/manager/rows.hpp"
#include "services/manager/store/redis_journal.hpp"
#include "services/manager/store/rocks_journal.hpp"
#include "transport/redis/server_url.hpp"

namespace cenote::bench {

namespace {

using namespace manager;

constexpr double ten_million = 1e7;

result<void> time_restart(const row_context& context, journal_opener open_journal, std::string_view name,
                          double limit) {
  const auto seconds = context.manager.open(std::move(open_journal));
  if (!seconds) return std::unexpected(seconds.error());
  const auto content = context.manager.content();
  if (!content) return std::unexpected(content.error());
  context.out.add({.bench = "manager",
                   .name = std::string(name),
                   .value = *seconds / content->keys * ten_million,
                   .unit = "s",
                   .promise = {bound::kind::value_at_most, limit}});
  return {};
}

result<void> copy_rows(const std::string& path, const redis_journal_options& options) {
  auto source = rocks_journal::open({.folder = path});
  auto target = redis_journal::make(options);
  if (!source || !target) return std::unexpected(source ? target.error() : source.error());
  if (auto raised = (*target)->raise_epoch(); !raised) return std::unexpected(raised.error());
  for (const row_kind kind : {row_kind::registry, row_kind::extent, row_kind::mask}) {
    result<void> written;
    const auto read = (*source)->read(kind, [&](std::string_view name, std::string_view value) {
      const journal_row row{.name = std::string(name), .value = std::string(value)};
      if (written) written = (*target)->write({&row, 1});
    });
    if (!read) return read;
    if (!written) return written;
  }
  return {};
}

result<void> restart_from_redis(const row_context& context) {
  const auto url = redis::parse_server_url(context.redis->url());
  if (!url) return std::unexpected(url.error());
  const redis_journal_options options{.access = {.address = url->servers.front()}, .prefix = "bench"};
  context.manager.close();
  if (auto copied = copy_rows(context.manager.rows_path(), options); !copied) return copied;
  const auto open = [options](const std::stop_token&) -> result<std::unique_ptr<journal>> {
    return redis_journal::make(options);
  };
  return time_restart(context, open, "restart from Redis, per 10 million keys", 15);
}

}  // namespace

result<void> run_restart_rows(const row_context& context) {
  context.manager.close();
  auto done = time_restart(context, context.manager.own_journal(), "restart, per 10 million keys", 5);
  if (done && context.redis != nullptr) done = restart_from_redis(context);
  return done;
}

}  // namespace cenote::bench
