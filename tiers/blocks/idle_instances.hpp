// Gives up instances that no session uses: empties them in steps, then removes them.
#pragma once

#include <cstdint>
#include <optional>

#include "core/shared_bound.hpp"
#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;
class evictor;
class instance_table;
class kept_blocks;
class lower_edges;
class request_chains;
class slab_space;

/// Decides which instances are given up, and empties them a step at a time.
class idle_instances {
 public:
  idle_instances(state& state, accounts& payers, evictor& evictor, slab_space& space, kept_blocks& kept,
                 lower_edges& edges, request_chains& chains, instance_table& table) noexcept
      : state_(state),
        accounts_(payers),
        evictor_(evictor),
        space_(space),
        kept_(kept),
        edges_(edges),
        chains_(chains),
        table_(table) {}

  [[nodiscard]] std::optional<tenths> idle_limit(const instance& instance) const noexcept;
  /// `limit_exceeded` when `owner` (a uid) may not make another one; idle instances make way as far as they can at
  /// once.
  result<void> make_room(std::uint32_t owner, boot_time now);
  void give_up_idle(boot_time now);

 private:
  [[nodiscard]] bool is_idle(const instance& instance, boot_time now) const noexcept;
  [[nodiscard]] bool is_crowded() const noexcept;
  [[nodiscard]] bool is_crowded(std::uint32_t owner) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> most_made_by(std::uint32_t owner) const noexcept;
  [[nodiscard]] share_usage usage_of(std::uint32_t owner) const noexcept;
  void make_way(boot_time now);
  void empty_some(instance& instance, std::uint32_t& budget, boot_time now);
  void give_up(instance_number number);

  state& state_;
  accounts& accounts_;
  evictor& evictor_;
  slab_space& space_;
  kept_blocks& kept_;
  lower_edges& edges_;
  request_chains& chains_;
  instance_table& table_;
};

}  // namespace cenote::blocks
