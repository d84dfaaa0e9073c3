// Batches of events in blocks of another size than the engine's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/enum_names.hpp"
#include "services/indexer/events/event_batch.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/placement/placement_counters.hpp"

namespace cenote::indexer {

/// Names of the blocks into which an engine's block is cut. The last one has the engine's.
enum class block_naming : std::uint8_t {
  distinct,  ///< each has a name of its own
  common,    ///< all have the engine's, as in llm-d's index
};
CENOTE_ENUM_NAMES(block_naming, distinct, common);

/// Blocks that have the extra keys of the engine's block into which they are cut.
enum class list_place : std::uint8_t {
  first_block,  ///< the first, so that a salt is where a question has it; the chain carries it on
  each_block,   ///< all, as in llm-d's keys
};
CENOTE_ENUM_NAMES(list_place, first_block, each_block);

[[nodiscard]] constexpr list_place list_place_of(key_chain chain) noexcept {
  return chain == key_chain::fnv64_cbor ? list_place::each_block : list_place::first_block;
}

struct resize_rules {
  static constexpr std::uint32_t most_ratio = 64;  ///< between the sizes of an engine's block and the index's

  std::uint32_t block_tokens = 0;  ///< of all blocks of the index; 0: each publisher's own
  block_naming naming = block_naming::distinct;
  list_place lists = list_place::first_block;
};

/// The name of a block into which an engine's block is cut, `distance` blocks before its end.
[[nodiscard]] std::uint64_t cut_name(std::uint64_t hash, std::uint32_t distance) noexcept;
/// The name of a block that is joined of an engine's blocks, of which the last has this hash.
[[nodiscard]] std::uint64_t joined_name(const resize_rules& rules, std::uint64_t last_hash) noexcept;

/// A batch that is being written in place of another.
struct batch_rewrite {
  using event_sink = std::function<void(const event_batch&)>;

  static constexpr std::size_t most_hashes = std::size_t{1} << 16;  ///< beyond which it is handed on

  event_batch& batch;
  placement_counters& counters;
  const event_sink& sink;
  bool is_parent_unknown = false;  ///< an event was dropped for want of its parent

  void refuse(placement_refusal reason, std::size_t blocks) noexcept { counters.refuse(reason, blocks); }
  /// Gives the events to the sink; those that follow begin anew.
  void hand_on();
  /// The same if there are many.
  void hand_on_many();

  /// An event of the same kind, place and adapter as one of `source`, with no blocks yet.
  [[nodiscard]] engine_event begin_event(const event_batch& source, const engine_event& event);
  /// Appends the next block's list of extra keys.
  void append_list(std::span<const std::byte> list);
  [[nodiscard]] array_range append_text(std::string_view text);
};

/// The elements of an array from `first` to its end.
template <class T>
[[nodiscard]] array_range range_from(std::size_t first, const std::vector<T>& array) noexcept {
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>(array.size() - first)};
}

}  // namespace cenote::indexer
