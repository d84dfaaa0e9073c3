// Subscribers that ask for all that is here now.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tiers/block_changes/block_changes.hpp"
#include "worker/publisher/event_peers.hpp"
#include "worker/publisher/event_rows.hpp"

namespace cenote::publishing {

/// One snapshot at a time, for all peers that wait when it begins. It has readers of its own in the tiers; when one of
/// them is through, live changes of its tier take its place, until the others are through as well: so all end at one
/// moment, and live batches go on there. Not thread-safe.
class snapshot_desk {
 public:
  explicit snapshot_desk(std::size_t media) : media_(media) {}

  /// `topic`: empty: all. A peer that asks again gives up its first request. False: too many others wait.
  bool ask(const std::string& peer, std::string topic, event_time now);
  /// Begins, if a peer waits. The rows are complete: the lasting readers of all tiers are through.
  void begin(event_time now);
  /// The reader whose changes are wanted now.
  [[nodiscard]] std::optional<change_reader> reader_of(event_medium medium) const;
  /// Readers that are no more; each is named once.
  [[nodiscard]] std::vector<change_reader> take_closed(event_medium medium);
  [[nodiscard]] bool has_closed(event_medium medium) const noexcept { return !closed_[index_of(medium)].empty(); }

  /// A run of a lasting reader, after the rows have taken it.
  void take_live(event_medium medium, const change_run& run, const event_rows& rows, double timestamp);
  /// A run of the snapshot's reader, of the same moment, after the rows were flushed.
  void take(event_medium medium, change_reader reader, const change_run& run, const event_rows& rows, double timestamp);
  /// A lasting reader had to begin anew: there is no moment at which all would be known.
  void fail();
  /// True: a peer is to be tried again soon.
  bool step(const frame_sender& send, event_time now);
  [[nodiscard]] bool is_active() const noexcept { return active_.has_value(); }

 private:
  struct snapshot_peer {
    std::string name;
    std::string topic;
    std::size_t next = 0;   ///< frame
    event_time heard_at{};  ///< that it took a frame
  };
  struct snapshot_frame {
    shared_text topic;
    std::uint64_t seq = 0;
    shared_text payload;        ///< null: the end
    bool is_for_asker = false;  ///< the end of a topic that nothing was published under
  };
  struct running_snapshot {
    change_reader reader = 0;
    std::vector<snapshot_peer> peers;
    std::vector<snapshot_frame> frames;
    std::array<bool, enum_size<event_medium>> has_begun{}, is_through{};
    bool has_ended = false;  ///< its last frames are there
  };
  static constexpr std::size_t most_frames = 64;  ///< that wait for the slowest peer

  static constexpr std::size_t index_of(event_medium medium) noexcept { return static_cast<std::size_t>(medium); }
  void add_frames(event_medium medium, const change_run& run, const event_rows& rows, double timestamp);
  void close_reader(event_medium medium);
  void finish(const event_rows& rows);
  static bool serve(snapshot_peer& peer, const running_snapshot& snapshot, const frame_sender& send, event_time now);

  std::size_t media_;
  std::vector<snapshot_peer> waiting_;
  std::optional<running_snapshot> active_;
  change_reader next_reader_ = change_reader{1} << 32;  ///< far from those of lasting ones
  std::array<std::vector<change_reader>, enum_size<event_medium>> closed_{};
};

}  // namespace cenote::publishing
