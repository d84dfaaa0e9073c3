// From an engine's blocks to those of the index, where all models have blocks of one size.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "services/indexer/feed/feed_options.hpp"
#include "services/indexer/placement/batch_rewrite.hpp"
#include "services/indexer/placement/part_joiner.hpp"

namespace cenote::indexer {

/// One publisher's batches. An engine's block that is a multiple of the index's is cut into several; several shorter
/// ones are joined to one. Sizes that are no multiples of each other are refused. The index's writer alone calls this.
class block_resizer {
 public:
  /// A node's events are names alone.
  block_resizer(const resize_rules& rules, publisher_kind kind, clear_scope clear, budget_share& memory) noexcept
      : rules_(rules), kind_(kind), joiner_(rules, clear, memory) {}

  /// Calls `sink` with the batch in blocks of the index's size, in several parts if it is long. `scratch` is written.
  /// What is refused is counted. True: an event was dropped for want of its parent.
  template <class Sink>
  bool resize(const event_batch& batch, event_batch& scratch, placement_counters& counters, Sink&& sink) {
    if (!is_needed(batch)) {
      sink(batch);
      return false;
    }
    const batch_rewrite::event_sink wrapped(std::ref(sink));
    return rewrite(batch, {scratch, counters, wrapped});
  }

  /// The publisher has no block any more; its parts have no names.
  void clear() noexcept;
  /// It has none in a medium any more; the empty name stands for all.
  void clear_medium(std::string_view medium) noexcept { joiner_.clear_medium(medium); }

  /// Blocks into which the engine's longest are cut, by its last events; at least 1.
  [[nodiscard]] std::uint32_t most_cuts() const noexcept;
  /// For a node, whose events have no sizes: those of its machine's engines.
  void set_cuts(std::uint32_t cuts);

 private:
  /// Tokens of an engine's block in a cache group.
  struct group_size {
    std::optional<std::int32_t> group;
    std::uint32_t tokens = 0;
  };

  [[nodiscard]] bool is_needed(const event_batch& batch) const noexcept;
  bool rewrite(const event_batch& batch, batch_rewrite out);
  void rewrite_event(const event_batch& batch, const engine_event& event, batch_rewrite& out);
  void store(const event_batch& batch, const engine_event& event, batch_rewrite& out);
  void copy(const event_batch& batch, const engine_event& event, batch_rewrite& out) const;
  void cut(const event_batch& batch, const engine_event& event, batch_rewrite& out) const;
  void cut_lists(const event_batch& batch, const engine_event& event, std::uint32_t cuts, batch_rewrite& out) const;
  void name_blocks(const event_batch& batch, const engine_event& event, batch_rewrite& out) const;
  void append_names(std::uint64_t hash, std::uint32_t cuts, std::vector<std::uint64_t>& hashes) const;
  [[nodiscard]] bool set_size(const engine_event& event);
  [[nodiscard]] std::uint32_t cuts_of(const engine_event& event) const noexcept;

  const resize_rules& rules_;
  publisher_kind kind_;
  std::vector<group_size> sizes_;
  part_joiner joiner_;
};

}  // namespace cenote::indexer
