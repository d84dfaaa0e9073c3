// From an engine's blocks to those of the index, where all models have blocks of one size.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/enum_names.hpp"
#include "services/indexer/events/event_batch.hpp"
#include "services/indexer/events/event_format.hpp"
#include "services/indexer/feed/feed_options.hpp"
#include "services/indexer/forest/index_budget.hpp"
#include "services/indexer/keys/token_processor.hpp"
#include "services/indexer/placement/part_table.hpp"
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

/// One publisher's batches. An engine's block that is a multiple of the index's is cut into several; several shorter
/// ones are one, which is there while all of them are. Sizes that are no multiples of each other are refused. The
/// index's writer alone calls this.
class block_resizer {
 public:
  using event_sink = std::function<void(const event_batch&)>;

  /// A node's events are names alone.
  block_resizer(const resize_rules& rules, publisher_kind kind, clear_scope clear, index_budget& budget) noexcept
      : rules_(rules), kind_(kind), clear_(clear), budget_(budget), repeats_(repeat_map::allocator_type(budget)) {}

  /// Calls `sink` with the batch in blocks of the index's size, in several parts if it is long. `scratch` is written.
  /// What is refused is counted. True: an event was dropped for want of its parent.
  template <class Sink>
  bool resize(const event_batch& batch, event_batch& scratch, placement_counters& counters, Sink&& sink) {
    if (!is_needed(batch)) {
      sink(batch);
      return false;
    }
    const event_sink wrapped(std::ref(sink));
    return rewrite(batch, {scratch, counters, wrapped});
  }

  /// The publisher has no block any more; its parts have no names.
  void clear() noexcept;
  /// It has none in a medium any more; the empty name stands for all.
  void clear_medium(std::string_view medium) noexcept;

  /// Blocks into which the engine's longest are cut, by its last events; at least 1.
  [[nodiscard]] std::uint32_t most_cuts() const noexcept;
  /// For a node, whose events have no sizes: those of its machine's engines.
  void set_cuts(std::uint32_t cuts);

  /// The name of a block into which an engine's block is cut, `distance` blocks before its end.
  [[nodiscard]] static std::uint64_t cut_name(std::uint64_t hash, std::uint32_t distance) noexcept;

 private:
  struct rewritten {
    event_batch& batch;
    placement_counters& counters;
    const event_sink& sink;
    bool is_parent_unknown = false;

    void refuse(placement_refusal reason, std::size_t blocks) noexcept { counters.refuse(reason, blocks); }
    /// Gives the events to the sink; those that follow begin anew.
    void hand_on();
  };
  using repeat_key = std::pair<std::uint64_t, part_place>;
  using repeat_map =
      std::map<repeat_key, std::uint32_t, std::less<>, budget_allocator<std::pair<const repeat_key, std::uint32_t>>>;
  using table_map = std::map<std::pair<std::string, std::uint32_t>, part_table, std::less<>>;
  using table_entry = table_map::value_type;
  /// Tokens of an engine's block in a cache group.
  struct group_size {
    std::optional<std::int32_t> group;
    std::uint32_t tokens = 0;
  };
  struct place_name {
    std::uint32_t rank = 0;
    std::optional<std::int32_t> group;
    std::string medium;

    friend bool operator==(const place_name&, const place_name&) = default;
  };

  [[nodiscard]] bool is_needed(const event_batch& batch) const noexcept;
  bool rewrite(const event_batch& batch, rewritten out);
  void rewrite_event(const event_batch& batch, const engine_event& event, rewritten& out);
  void store(const event_batch& batch, const engine_event& event, rewritten& out);
  void copy(const event_batch& batch, const engine_event& event, rewritten& out) const;
  void cut(const event_batch& batch, const engine_event& event, rewritten& out) const;
  void cut_lists(const event_batch& batch, const engine_event& event, std::uint32_t cuts, event_batch& out) const;
  void name_blocks(const event_batch& batch, const engine_event& event, rewritten& out) const;
  void store_parts(const event_batch& batch, const engine_event& event, rewritten& out);
  void hold_parts(const event_batch& batch, const engine_event& event, rewritten& out);
  void release_parts(const event_batch& batch, const engine_event& event, rewritten& out);
  void release_parts(part_table& table, std::span<const std::uint64_t> hashes, part_place place);
  void clear_places(const event_batch& batch) noexcept;
  void clear(part_place place) noexcept;
  void hold(part_table& table, part_number part, part_place place);
  void append_stored(const event_batch& batch, const engine_event& event, const table_entry& entry, part_place place,
                     rewritten& out);
  void append_removed(const event_batch& batch, const engine_event& event, const part_table& table,
                      rewritten& out) const;
  void append_path(const part_table& table, part_number last, std::string_view lora_name, event_batch& out) const;
  void append_name(std::uint64_t hash, std::uint32_t cuts, std::vector<std::uint64_t>& hashes) const;

  [[nodiscard]] bool set_size(const engine_event& event);
  [[nodiscard]] std::uint32_t cuts_of(const engine_event& event) const noexcept;
  [[nodiscard]] bool is_part(std::uint64_t hash) const noexcept;
  [[nodiscard]] table_entry* table_of(std::string_view lora_name, std::uint32_t part_tokens);
  [[nodiscard]] std::optional<part_place> place_of(const event_batch& batch, const engine_event& event);
  [[nodiscard]] std::uint64_t whole_name(std::uint64_t last_hash) const noexcept;

  const resize_rules& rules_;
  publisher_kind kind_;
  clear_scope clear_;
  index_budget& budget_;
  std::vector<group_size> sizes_;
  table_map tables_;  ///< by adapter and size
  std::vector<place_name> places_;
  /// Parts of media besides the GPU's that were stored more than once, and how often.
  repeat_map repeats_;
  std::vector<part_number> ends_;
};

}  // namespace cenote::indexer
