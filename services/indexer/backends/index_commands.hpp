// Keys, commands and scripts of an index that is shared on a Redis server.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cenote::indexer {

/// llm-d's: the decimal key of a block is a hash of pod_entry fields, `engine:<decimal hash>` a sorted set of keys.
/// Cenote's own stand under `engine:` as well, which llm-d passes when it clears a pod.
namespace shared_keys {

/// Sorted set: keys of the blocks that an engine calls so, by position.
[[nodiscard]] std::string engine_key(std::uint64_t hash);
/// Set: keys of blocks that a pod has, as far as Cenote wrote them.
[[nodiscard]] std::string pod_key(std::string_view pod);
/// Set: tokens a block, of a model or an adapter.
[[nodiscard]] std::string model_key(std::string_view model);
/// Text: XXH3-64 of the first batch of the publisher's present life.
[[nodiscard]] std::string life_key(std::string_view pod, std::string_view model, std::uint32_t rank);
/// Text: a random number of this data set, which is gone when the server has lost it.
inline constexpr std::string_view data_set_key = "engine:data-set";

/// The key of a block; nothing for other texts.
[[nodiscard]] std::optional<std::uint64_t> block_key_in(std::string_view text) noexcept;

}  // namespace shared_keys

/// Commands of the protocol, each whole.
namespace shared_commands {

/// Entries of blocks behind one another, and the names that their engine has for them (empty: none); `position` is that
/// of the first among the blocks of an event.
void add_blocks(std::vector<std::string>& commands, std::string_view pod, std::string_view field,
                std::span<const std::uint64_t> keys, std::span<const std::uint64_t> hashes, std::size_t position = 0);
/// Takes the field from the blocks of these names. Blocks without a field go, and names without a block.
void remove_blocks(std::vector<std::string>& commands, std::string_view pod, std::string_view field,
                   std::span<const std::uint64_t> hashes);
/// Takes all fields that begin with `begin` from these keys, which are texts of SSCAN or SCAN; others are passed.
[[nodiscard]] std::string clear_blocks(std::string_view pod, std::string_view begin, std::span<const std::string> keys);
/// The newest key of a name: a list of at most one text.
[[nodiscard]] std::string find_block(std::uint64_t hash);
/// All keys of a name, in the order of their blocks.
[[nodiscard]] std::string find_blocks(std::uint64_t hash);
[[nodiscard]] std::string list_fields(std::uint64_t key);
[[nodiscard]] std::string add_size(std::string_view model, std::uint32_t block_tokens);
[[nodiscard]] std::string list_sizes(std::string_view model);
/// Sets a text and gives the one of before, or nil.
[[nodiscard]] std::string replace(std::string_view key, std::string_view text);
/// Sets a text if there is none, and gives the one that holds then, with the run of the server's process behind it.
[[nodiscard]] std::string settle(std::string_view key, std::string_view text);
[[nodiscard]] std::string scan_pod(std::string_view pod, std::string_view cursor);
[[nodiscard]] std::string scan_all(std::string_view cursor);

}  // namespace shared_commands

}  // namespace cenote::indexer
