// Reports of the node, shared by those who ask at the same time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "actors/messages.hpp"
#include "transport/local/alarm.hpp"
#include "transport/local/event_loop.hpp"

namespace cenote {

/// A report costs every actor a message: however many ask, one is made at a time, and between two lies three times as
/// long as the last one took (250 ms at most). Nobody gets a report that began before the question. All calls on the
/// loop's thread.
class shared_reports {
 public:
  using hearer = std::function<void(const result<report_ptr>&)>;

  shared_reports(caf::actor_system& system, node_actor node, const std::shared_ptr<local::event_loop>& loop);

  /// Calls `who` once, later: deadline_exceeded when the actors do not answer in time.
  void want(hearer who);
  /// Counts the reports that were begun; the same for all who hear of one.
  [[nodiscard]] std::uint64_t turn() const noexcept { return turn_; }

 private:
  using clock = local::event_loop::clock;

  void begin();
  void end(std::uint64_t turn, const result<report_ptr>& report);

  caf::actor_system& system_;
  node_actor node_;
  std::weak_ptr<local::event_loop> loop_;  // an answer may come when server and loop are gone
  std::vector<hearer> waiting_;            ///< for the next report
  std::vector<hearer> served_;             ///< by the one under way
  std::uint64_t turn_ = 0;
  bool under_way_ = false;
  clock::time_point begun_;
  clock::time_point next_;
  local::alarm pause_;     ///< rings at next_
  local::alarm deadline_;  ///< of the report under way
};

}  // namespace cenote
