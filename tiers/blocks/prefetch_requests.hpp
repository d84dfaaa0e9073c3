// Prefetches as a block tier sees them: it reads requests, carries out the planner's commands, and holds what came.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "tiers/blocks/state.hpp"
#include "tiers/prefetch/commands.hpp"

namespace cenote::blocks {

class lower_edges;
class pin_looks;
class prefetch_holds;
class transfer_table;

/// Gathers requests from ring entries for the planner, and executes its commands.
class prefetch_requests {
 public:
  prefetch_requests(state& state, prefetch_holds& held, transfer_table& transfers, pin_looks& looks,
                    lower_edges& edges) noexcept
      : state_(state), holds_(held), transfers_(transfers), pins_(looks), edges_(edges) {}

  progress run_prefetch(batch& work, session& session, const memory::submission& entry);
  void run_prefetch_end(session& session, const memory::submission& entry);
  progress run_publish(batch& work, session& session, const memory::submission& entry, boot_time now);
  progress run_follow(batch& work, session& session, const memory::submission& entry);
  /// Carries a command of the planner out; the result of a `release` says nothing.
  prefetch::command_result execute(const prefetch::command& command, boot_time now);
  [[nodiscard]] std::vector<prefetch::request> take_prefetches() { return std::exchange(prefetches_, {}); }

 private:
  [[nodiscard]] static publication name_of_publication(const session& session, const memory::submission& entry);
  [[nodiscard]] static share_holder holder_of(const session& session);
  [[nodiscard]] static handover::request_name request_of(const session& session, const memory::submission& entry);
  [[nodiscard]] prefetch::spot place_of(const instance& instance, std::uint32_t group,
                                        const full_key& full) const noexcept;
  void execute_load(const prefetch::command& command, prefetch::command_result& into, boot_time now);
  void execute_finish(const prefetch::command& command, prefetch::command_result& into);
  void keep_held(const prefetch::command& command, std::uint32_t record, std::uint64_t stride);
  void end_holds(std::uint64_t job);

  state& state_;
  prefetch_holds& holds_;
  transfer_table& transfers_;
  pin_looks& pins_;
  lower_edges& edges_;
  std::vector<prefetch::request> prefetches_;
};

}  // namespace cenote::blocks
