#include "services/indexer/backends/index_commands.hpp"

#include <algorithm>
#include <charconv>

#include "services/indexer/backends/pod_entry.hpp"
#include "services/indexer/placement/block_resizer.hpp"
#include "transport/redis/command_text.hpp"

namespace cenote::indexer {

namespace {

using redis::add_argument;
using redis::begin_command;
using redis::wire_command;

constexpr std::size_t most_names = 256;  // of a script, which stops the server meanwhile
constexpr std::string_view page = "128";
constexpr std::size_t most_cut_blocks = resize_rules::most_ratio;  // of an engine's block

// A hash that has lost its last field is gone by itself. ARGV: the field, the beginning of all fields of the pod.
constexpr std::string_view remove_script = R"(
local function has_pod(key)
  if redis.call('EXISTS', key) == 0 then return false end
  for _, field in ipairs(redis.call('HKEYS', key)) do
    if string.sub(field, 1, #ARGV[2]) == ARGV[2] then return true end
  end
  return false
end
local removed = 0
for i = 2, #KEYS do
  local blocks = redis.pcall('ZRANGE', KEYS[i], 0, -1)
  if not blocks.err then
    local is_used = false
    for _, key in ipairs(blocks) do
      local done = redis.pcall('HDEL', key, ARGV[1])
      if type(done) == 'number' then
        removed = removed + done
        if done > 0 and not has_pod(key) then redis.call('SREM', KEYS[1], key) end
        if redis.call('EXISTS', key) == 1 then is_used = true end
      end
    end
    if not is_used then redis.call('DEL', KEYS[i]) end
  end
end
return removed
)";

// ARGV: the beginning of the fields that go, and of all fields of the pod. Keys that are no hashes are passed.
constexpr std::string_view clear_script = R"(
local removed = 0
for i = 2, #KEYS do
  local fields = redis.pcall('HKEYS', KEYS[i])
  if not fields.err then
    local is_left = false
    for _, field in ipairs(fields) do
      if string.sub(field, 1, #ARGV[1]) == ARGV[1] then
        removed = removed + redis.call('HDEL', KEYS[i], field)
      elseif string.sub(field, 1, #ARGV[2]) == ARGV[2] then
        is_left = true
      end
    end
    if not is_left then redis.call('SREM', KEYS[1], KEYS[i]) end
  end
end
return removed
)";

// A server that was started again, or a replica in its place, may have older data with the same mark: its run is a part
// of what is compared. Where INFO is not allowed it is left out.
constexpr std::string_view settle_script = R"(
redis.call('SETNX', KEYS[1], ARGV[1])
local facts = redis.pcall('INFO', 'server')
local run = type(facts) == 'string' and string.match(facts, 'run_id:(%w+)') or ''
return redis.call('GET', KEYS[1]) .. ' ' .. run
)";

}  // namespace

namespace shared_keys {

std::string engine_key(std::uint64_t hash) {
  return "engine:" + std::to_string(hash);
}

std::string pod_key(std::string_view pod) {
  return "engine:pod:" + std::string(pod);
}

std::string model_key(std::string_view model) {
  return "engine:model:" + std::string(model);
}

std::string life_key(std::string_view pod, std::string_view model, std::uint32_t rank) {
  return "engine:life:" + std::to_string(rank) + ":" + std::string(pod) + "@" + std::string(model);
}

std::optional<std::uint64_t> block_key_in(std::string_view text) noexcept {
  std::uint64_t key = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), key);
  if (code != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return key;
}

}  // namespace shared_keys

namespace shared_commands {

void add_blocks(std::vector<std::string>& commands, std::string_view pod, std::string_view field,
                std::span<const std::uint64_t> keys, std::span<const std::uint64_t> hashes, std::size_t position) {
  if (keys.empty()) return;
  std::string members;
  begin_command(members, 2 + keys.size());
  add_argument(members, "SADD");
  add_argument(members, shared_keys::pod_key(pod));
  for (const std::uint64_t key : keys) add_argument(members, std::to_string(key));
  // Before the blocks: what the set names can be cleared.
  commands.push_back(std::move(members));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    const std::string key = std::to_string(keys[i]);
    commands.push_back(wire_command({"HSET", key, field, ""}));
    // Behind the block: another indexer that removes by this name takes away names whose blocks are all empty.
    if (i < hashes.size()) {
      commands.push_back(wire_command({"ZADD", shared_keys::engine_key(hashes[i]), std::to_string(position + i), key}));
    }
  }
}

void remove_blocks(std::vector<std::string>& commands, std::string_view pod, std::string_view field,
                   std::span<const std::uint64_t> hashes) {
  for (; !hashes.empty(); hashes = hashes.subspan(std::min(hashes.size(), most_names))) {
    const auto some = hashes.first(std::min(hashes.size(), most_names));
    std::string& command = commands.emplace_back();
    begin_command(command, 6 + some.size());
    add_argument(command, "EVAL");
    add_argument(command, remove_script);
    add_argument(command, std::to_string(1 + some.size()));
    add_argument(command, shared_keys::pod_key(pod));
    for (const std::uint64_t hash : some) add_argument(command, shared_keys::engine_key(hash));
    add_argument(command, field);
    add_argument(command, field_begin(pod, {}));
  }
}

std::string clear_blocks(std::string_view pod, std::string_view begin, std::span<const std::string> keys) {
  std::string command;
  begin_command(command, 6 + keys.size());
  add_argument(command, "EVAL");
  add_argument(command, clear_script);
  add_argument(command, std::to_string(1 + keys.size()));
  add_argument(command, shared_keys::pod_key(pod));
  for (const std::string& key : keys) add_argument(command, key);
  add_argument(command, begin);
  add_argument(command, field_begin(pod, {}));
  return command;
}

std::string find_block(std::uint64_t hash) {
  return wire_command({"ZREVRANGE", shared_keys::engine_key(hash), "0", "0"});
}

std::string find_blocks(std::uint64_t hash) {
  return wire_command({"ZRANGE", shared_keys::engine_key(hash), "0", std::to_string(most_cut_blocks - 1)});
}

std::string list_fields(std::uint64_t key) {
  return wire_command({"HKEYS", std::to_string(key)});
}

std::string add_size(std::string_view model, std::uint32_t block_tokens) {
  return wire_command({"SADD", shared_keys::model_key(model), std::to_string(block_tokens)});
}

std::string list_sizes(std::string_view model) {
  return wire_command({"SMEMBERS", shared_keys::model_key(model)});
}

std::string replace(std::string_view key, std::string_view text) {
  return wire_command({"GETSET", key, text});
}

std::string settle(std::string_view key, std::string_view text) {
  return wire_command({"EVAL", settle_script, "1", key, text});
}

std::string scan_pod(std::string_view pod, std::string_view cursor) {
  return wire_command({"SSCAN", shared_keys::pod_key(pod), cursor, "COUNT", page});
}

std::string scan_all(std::string_view cursor) {
  return wire_command({"SCAN", cursor, "COUNT", page});
}

}  // namespace shared_commands

}  // namespace cenote::indexer
