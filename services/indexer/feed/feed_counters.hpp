// Figures of one publisher's feed. Sums saturate.
#pragma once

#include <cstdint>

namespace cenote::indexer {

struct feed_counters {
  std::uint64_t applied = 0;          ///< batches, from wherever they came
  std::uint64_t replayed = 0;         ///< of those, by replays
  std::uint64_t snapshot = 0;         ///< and by snapshots
  std::uint64_t gaps = 0;             ///< live numbers that were too high
  std::uint64_t doubles = 0;          ///< batches that came again
  std::uint64_t restarts = 0;         ///< times that the publisher began anew
  std::uint64_t lost_batches = 0;     ///< batches that cannot be had, as the numbers have it
  std::uint64_t asks = 0;             ///< replays and snapshots that were asked for
  std::uint64_t failures = 0;         ///< of those, without an end
  std::uint64_t late_frames = 0;      ///< frames of requests that are over
  std::uint64_t unconfirmed = 0;      ///< live batches of an earlier life
  std::uint64_t dropped_bytes = 0;    ///< of live batches that found no room to wait in
  std::uint64_t refused = 0;          ///< batches that are too large, and the number that no batch has
  std::uint64_t refused_bytes = 0;    ///< in those
  std::uint64_t unknown_parents = 0;  ///< replays asked for because of one
};

}  // namespace cenote::indexer
