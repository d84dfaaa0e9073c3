#include "services/manager/storages/redis_storage.hpp"

#include <charconv>
#include <string_view>
#include <utility>

#include "transport/redis/command_text.hpp"
#include "transport/redis/server_url.hpp"

namespace cenote::manager {

namespace {

/// The number behind "name:" in the text of INFO; 0 without it.
std::uint64_t number_in(std::string_view info, std::string_view name) {
  const std::size_t begin = info.find(name);
  if (begin == std::string_view::npos) return 0;
  const std::string_view digits = info.substr(begin + name.size());
  std::uint64_t number = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), number);
  return number;
}

std::unexpected<error> refuse_reply(std::string_view reason) {
  return fail(error_code::system, "the Redis server refuses: " + std::string(reason));
}

}  // namespace

result<std::unique_ptr<redis_storage>> redis_storage::make(const std::string& url, const std::string& auth_file,
                                                           std::chrono::milliseconds timeout) {
  const auto parsed = redis::parse_server_url(url);
  if (!parsed) return std::unexpected(parsed.error());
  if (parsed->servers.size() != 1) return fail(error_code::invalid_argument, "a storage is one Redis server");
  auto client = redis::waiting_client::make({.address = parsed->servers.front(),
                                             .user = parsed->user,
                                             .credentials = auth_file,
                                             .database = parsed->database,
                                             .tls = parsed->tls});
  if (!client) return std::unexpected(client.error());
  return std::unique_ptr<redis_storage>(new redis_storage(std::move(*client), timeout));
}

result<std::string> redis_storage::ask(const std::string& command) {
  std::string text, failure;
  const auto asked = client_.run({&command, 1}, redis::present_time() + timeout_,
                                 [&](std::size_t /*index*/, const redis::server_reply& reply) {
                                   (reply.kind == redis::server_reply::type::failure ? failure : text) = reply.text;
                                 });
  if (!asked) return std::unexpected(asked.error());
  if (!failure.empty()) return refuse_reply(failure);
  return text;
}

result<> redis_storage::remove(const removal_item& item) {
  return remove_together({&item, 1}).front();
}

std::vector<result<>> redis_storage::remove_together(std::span<const removal_item> items) {
  std::string command;
  redis::begin_command(command, items.size() + 1);
  redis::add_argument(command, "UNLINK");
  for (const removal_item& item : items) redis::add_argument(command, item.place);
  const auto removed = ask(command);
  return std::vector<result<>>(items.size(), removed ? result<>() : std::unexpected(removed.error()));
}

std::vector<result<bool>> redis_storage::exist_together(std::span<const removal_item> items) {
  std::vector<std::string> commands;
  for (const removal_item& item : items) commands.push_back(redis::wire_command({"EXISTS", item.place}));
  std::vector<result<bool>> found(items.size(), false);
  const auto asked =
      client_.run(commands, redis::present_time() + timeout_, [&](std::size_t index, const redis::server_reply& reply) {
        found[index] = reply.kind == redis::server_reply::type::integer ? result<bool>(reply.number != 0)
                                                                        : refuse_reply(reply.text);
      });
  if (!asked) return std::vector<result<bool>>(items.size(), std::unexpected(asked.error()));
  return found;
}

result<storage_room> redis_storage::probe() {
  const auto info = ask(redis::wire_command({"INFO", "memory"}));
  if (!info) return std::unexpected(info.error());
  const std::uint64_t most = number_in(*info, "\nmaxmemory:"), used = number_in(*info, "\nused_memory:");
  return storage_room{.free_bytes = most > used ? most - used : 0, .total_bytes = most};
}

}  // namespace cenote::manager
