// The turns of sessions: requests that go on from the end of an earlier one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "tiers/eviction/ghost_list.hpp"
#include "tiers/eviction/request_clock.hpp"
#include "tiers/eviction/running_median.hpp"

namespace cenote::eviction {

/// The last full block of each request leaves a ghost, the tip of its session, for 1,536 s, 65,536 at most. The turn of
/// a request is one more than that of the deepest tip on its path, or 1. Where requests branch is no tip. Not
/// thread-safe.
class session_turns {
 public:
  /// Whether it is known of the block at a place of the request that different ones came after it.
  using branch_test = std::function<bool(std::size_t position)>;

  session_turns() noexcept;

  /// A request begins; `blocks` are its full ones, head first. Returns its turn.
  std::uint32_t begin(std::span<const std::uint64_t> blocks, std::uint32_t time, const branch_test& branches);
  /// Takes over what another one knows, but its time.
  void import_history(const session_turns& predecessor);

  /// Of the latest request.
  [[nodiscard]] std::uint32_t turn() const noexcept { return turn_; }
  /// The running median of how long sessions take until they go on, in tenths of a second, 50 at least.
  [[nodiscard]] std::uint32_t bonus() const noexcept;
  /// Whether at least four of the latest 64 requests went on from a session.
  [[nodiscard]] bool sees_sessions() const noexcept;
  /// A time as it is counted where it stands still.
  [[nodiscard]] std::uint32_t counted_time(std::uint32_t time) const noexcept { return clock_.at(time); }
  [[nodiscard]] std::size_t tips() const noexcept { return tips_.size(); }

 private:
  struct tip {
    std::uint32_t time = 0;
    std::uint32_t turn = 0;
    std::uint64_t next = 0;  ///< what came after it; 0: nothing yet
    bool branches = false;   ///< something else did, too
  };

  [[nodiscard]] std::uint32_t find_turn(std::span<const std::uint64_t> blocks, std::uint32_t now,
                                        const branch_test& branches);
  [[nodiscard]] const tip* find_tip(std::span<const std::uint64_t> blocks, std::size_t position,
                                    const branch_test& branches);
  void leave_tip(std::uint64_t block, std::uint32_t now);

  ghost_list<tip> tips_;
  request_clock clock_;
  running_median delay_;
  std::uint64_t later_turns_ = 0;  ///< a bit for each of the latest requests, the last one's is the lowest
  std::uint32_t turn_ = 1;
};

}  // namespace cenote::eviction
