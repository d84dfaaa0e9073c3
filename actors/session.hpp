// The actor of one attached process.
#pragma once

#include "actors/actor_alarm.hpp"
#include "actors/consensus_messages.hpp"
#include "actors/messages.hpp"

namespace cenote {

/// Reads the session's submission ring, passes whole requests to the DRAM tier as one batch, and answers on the
/// completion ring. One batch is under way at a time; ring places are given back after their effect. What concerns
/// groups of ranks goes to the consensus actor, is answered later, and survives no worker: its places are given back at
/// once.
///
///   doorbell   the client rang, or there may be more to read
///   report     what status shows
///   drain      answers once no batch is under way; from then on nothing is read any more
///
/// A ring whose words make no sense is not read again; the session's memory is safe until its process ends.
class session final : public session_actor::base {
 public:
  /// `groups`: none: requests about groups of ranks are malformed.
  session(caf::actor_config& config, session_ptr resources, dram_tier_actor dram, consensus_actor groups = {});

  [[nodiscard]] const char* name() const override { return "session"; }
  void on_exit() override;

 protected:
  behavior_type make_behavior() override;

 private:
  void serve();
  void read_ring();
  /// The longest run of whole requests of one kind among the waiting entries that the completion ring can answer.
  [[nodiscard]] batch_ptr take_batch(std::uint64_t waiting, std::uint64_t room) const;
  [[nodiscard]] bool is_for_groups(const memory::submission& entry) const noexcept;
  void pass_to_groups(std::vector<memory::submission> entries);
  void pass_to_tier(batch_ptr work);
  void answer(const blocks::batch& finished);
  /// Answers that came by themselves (prefetches), as far as the ring has room.
  void answer_late();
  void malformed(std::string_view what);
  void look_again();
  void look_at_time();

  session_ptr resources_;
  dram_tier_actor dram_;
  consensus_actor groups_;
  memory::worker_rings rings_;
  std::deque<memory::completion> late_;
  /// Requests that the planner of prefetches or the consensus actor has not answered yet; below 0 while an answer is
  /// here before its batch.
  std::int64_t owed_ = 0;
  bool busy_ = false;  ///< a batch is in the tier
  bool broken_ = false;
  bool draining_ = false;
  actor_alarm<wake_atom> alarm_;  ///< for a look that no doorbell asks for
  std::chrono::milliseconds pause_{0};
  std::chrono::steady_clock::time_point sent_{};  ///< the batch in the tier
  bool told_ = false;                             ///< that it takes long
  std::uint64_t batches_ = 0;
  std::uint64_t entries_ = 0;
  std::vector<caf::typed_response_promise<outcome>> drained_;
};

}  // namespace cenote
