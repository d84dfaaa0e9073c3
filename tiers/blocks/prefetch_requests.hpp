// Prefetches as a block tier sees them: it reads requests, carries out the planner's commands, and holds what came.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tiers/blocks/state.hpp"
#include "tiers/prefetch/orders.hpp"

namespace cenote::blocks {

class lower_edges;
class pin_looks;
class prefetch_holds;
class transfer_table;

/// Gathers requests from ring entries for the planner, and does what it says.
class prefetch_requests {
 public:
  prefetch_requests(state& of, prefetch_holds& held, transfer_table& transfers, pin_looks& looks,
                    lower_edges& edges) noexcept
      : state_(of), holds_(held), transfers_(transfers), pins_(looks), edges_(edges) {}

  progress run_prefetch(batch& work, session& by, const memory::submission& entry);
  void run_prefetch_word(session& by, const memory::submission& entry);
  /// Carries an order out; the answer of a `release` has nothing to say.
  prefetch::reply obey(const prefetch::order& order, coarse_time now);
  [[nodiscard]] std::vector<prefetch::word> take_prefetches() { return std::exchange(prefetches_, {}); }

 private:
  [[nodiscard]] prefetch::place place_of(const instance& in, std::uint32_t group, const full_key& full) const noexcept;
  void obey_load(const prefetch::order& order, prefetch::reply& into, coarse_time now);
  void obey_finish(const prefetch::order& order, prefetch::reply& into);
  void keep_held(const prefetch::order& by, std::uint32_t record, std::uint64_t stride);
  void end_holds(std::uint64_t job);

  state& state_;
  prefetch_holds& holds_;
  transfer_table& transfers_;
  pin_looks& pins_;
  lower_edges& edges_;
  std::vector<prefetch::word> prefetches_;
};

}  // namespace cenote::blocks
