// Blocks of the index out of an engine's shorter ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "services/indexer/events/event_format.hpp"
#include "services/indexer/forest/budget_share.hpp"
#include "services/indexer/placement/batch_rewrite.hpp"
#include "services/indexer/placement/part_table.hpp"

namespace cenote::indexer {

/// One publisher's parts of blocks. A block of the index is stored when the last of its parts comes, and removed when
/// the first one goes. The index's writer alone calls this.
class part_joiner {
 public:
  part_joiner(const resize_rules& rules, clear_scope clear, budget_share& memory) noexcept
      : rules_(rules), clear_(clear), memory_(memory), repeats_(repeat_map::allocator_type(memory)) {}

  /// True: no part ever came.
  [[nodiscard]] bool empty() const noexcept { return tables_.empty(); }
  /// Whether a hash is a part's.
  [[nodiscard]] bool has(std::uint64_t hash) const noexcept;

  /// The next batch begins, whose events may cost so much work and no more.
  void begin(const event_batch& batch) noexcept;
  /// Blocks with their tokens, shorter than the index's.
  void store(const event_batch& batch, const engine_event& event, batch_rewrite& out);
  /// Names of parts that earlier events had with their tokens; others are passed.
  void hold(const event_batch& batch, const engine_event& event, batch_rewrite& out);
  /// The parts among these names are there no more.
  void release(const event_batch& batch, const engine_event& event, batch_rewrite& out);
  /// An event that clears: of the batch's rank.
  void clear(const event_batch& batch) noexcept;
  /// No part is in a medium any more; the empty name stands for all.
  void clear_medium(std::string_view medium) noexcept;
  /// There are no parts any more, nor names of them.
  void clear() noexcept;
  /// Parts that nothing holds go if they are many.
  void trim() noexcept;

 private:
  /// Where parts can be.
  struct place_facts {
    std::uint32_t rank = 0;
    std::optional<std::int32_t> group;
    std::string medium;
    std::uint64_t life = 0;  ///< clears
  };
  /// A part, its place, and the place's life.
  using repeat_key = std::tuple<std::uint64_t, part_place, std::uint64_t>;
  using repeat_map =
      std::map<repeat_key, std::uint32_t, std::less<>, share_allocator<std::pair<const repeat_key, std::uint32_t>>>;

  void hold_part(part_table& table, part_number part, part_place place, batch_rewrite& out);
  void repeat(const repeat_key& key) noexcept;
  void release_part(part_table& table, part_number part, part_place place);
  void append_stored(const event_batch& batch, const engine_event& event, const part_table& table, part_place place,
                     batch_rewrite& out);
  void append_removed(const event_batch& batch, const engine_event& event, const part_table& table,
                      batch_rewrite& out) const;
  void append_block(const part_table& table, part_number last, batch_rewrite& out) const;
  void clear_place(part_place place) noexcept;
  [[nodiscard]] repeat_key key_of(const part_table& table, part_number part, part_place place) const noexcept {
    return {table.hash_of(part), place, places_[place].life};
  }
  [[nodiscard]] part_table* table_of(std::uint32_t part_tokens);
  [[nodiscard]] std::optional<part_adapter> adapter_of(std::string_view lora_name);
  [[nodiscard]] std::optional<part_place> place_of(const event_batch& batch, const engine_event& event);

  const resize_rules& rules_;
  clear_scope clear_;
  budget_share& memory_;
  std::map<std::uint32_t, part_table> tables_;  ///< by tokens of a part
  std::map<std::string, part_adapter, std::less<>> adapters_;
  std::vector<std::string_view> adapter_names_;  ///< by number; the texts are the map's
  std::vector<place_facts> places_;
  repeat_map repeats_;  ///< stores beyond the first, in media besides the GPU
  std::size_t work_ = 0, most_work_ = 0;
  std::vector<part_number> ends_;
};

}  // namespace cenote::indexer
