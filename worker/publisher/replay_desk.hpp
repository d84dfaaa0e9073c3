// Subscribers that ask for batches from a number on.
#pragma once

#include <string>
#include <vector>

#include "worker/publisher/event_peers.hpp"
#include "worker/publisher/event_rows.hpp"

namespace cenote::publishing {

/// Answers each out of the ring, a few frames a turn. Not thread-safe.
class replay_desk {
 public:
  /// `topic`: empty: all. A peer that asks again gives up its first request. False: too many others are being answered.
  bool ask(const std::string& peer, std::string topic, std::uint64_t start, const event_rows& rows, event_time now);
  /// True: a peer is to be tried again soon.
  bool step(const event_rows& rows, const frame_sender& send, event_time now);
  [[nodiscard]] std::size_t peers() const noexcept { return jobs_.size(); }

 private:
  struct replay_job {
    std::string peer;
    std::string topic;
    std::uint64_t start = 0;
    std::uint64_t place = 0;  ///< in the ring
    event_time heard_at{};    ///< that it took a frame
  };
  enum class replay_progress : std::uint8_t { ended, going_on };
  static replay_progress advance(replay_job& job, const event_rows& rows, const frame_sender& send, event_time now);

  std::vector<replay_job> jobs_;
};

}  // namespace cenote::publishing
