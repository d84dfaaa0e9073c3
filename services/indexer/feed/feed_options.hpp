// Options of a feed: bounds, times, and the rules that tests leave out one by one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "core/enum_names.hpp"

namespace cenote::indexer {

using feed_time = std::chrono::steady_clock::time_point;

enum class publisher_kind : std::uint8_t {
  engine,  ///< its blocks end with its process
  node,    ///< its blocks survive its process: they go when a snapshot or a replay takes their place
};
CENOTE_ENUM_NAMES(publisher_kind, engine, node);

/// For tests, which show that each is needed.
struct feed_rules {
  bool replays_at_connect = true;      ///< the first connection asks for everything
  bool replays_at_reconnect = true;    ///< so does a later one for what was missed
  bool replays_gaps = true;            ///< a number too high asks for those between
  bool replays_dropped = true;         ///< batches that found no room are asked for
  bool checks_unknown_parents = true;  ///< a parent that is not there asks whether the engine is the same
  bool waits_behind_replay = true;     ///< live batches are not applied before an answer is through
  bool counts_once = true;             ///< what waited and was replayed, too, is not applied again
  bool compares_live = true;           ///< a lower live number is a double only with the same fingerprint
  bool compares_replayed = true;       ///< a replayed batch that was applied has to have the same fingerprint
  bool repeats_applied = true;         ///< a replay begins with batches that were applied, not behind them
  bool repeats_unconfirmed = true;     ///< it begins with the last one that an answer confirmed, not with the newest
  bool misses_applied = true;          ///< an answer without batches that were applied is another life's
  bool clears_restarts = true;         ///< media go when the engine began anew
  bool clears_losses = true;           ///< and when batches, removals maybe, are lost
  bool marks_losses = true;            ///< a publisher with lost batches is degraded
  bool drops_unconfirmed = true;       ///< live batches that two answers lack are another life's
  bool numbers_replays = true;         ///< frames of a replay that was given up are not taken
  bool retries_replays = true;         ///< a replay that never ends is asked for again
  bool gives_up = true;                ///< without answers, live batches are taken as they come
  bool takes_snapshots = true;         ///< what a replay cannot bring is asked for as a snapshot
  bool grows_silent = true;            ///< an absent publisher leaves the answers after `grace`
  bool checks_quiet = true;            ///< a publisher that grows quiet is asked whether its last batches were lost
  bool clears_unproved = true;         ///< without replays a new connection may be another life's
};

struct feed_options {
  publisher_kind kind = publisher_kind::engine;
  bool has_replay = true;                                  ///< false: whatever is missed is lost
  std::chrono::milliseconds grace{30'000};                 ///< `events.grace`
  std::uint64_t waiting_bytes = std::uint64_t{16} << 20U;  ///< that live batches may take while they wait
  std::uint64_t batch_bytes = std::uint64_t{16} << 20U;    ///< larger ones are refused
  std::size_t recent = 256;                                ///< batches whose fingerprints are kept; 16 B each
  std::chrono::milliseconds replay_silence{5'000};         ///< between two frames of an answer
  std::chrono::milliseconds first_answer{1'000};           ///< before the first frame; doubles with each try
  std::chrono::milliseconds replay_limit{120'000};         ///< of a whole answer
  std::chrono::milliseconds quiet{10'000};                 ///< without a batch, before a check; doubles each time
  std::chrono::milliseconds longest_quiet{300'000};        ///< the most of it
  std::chrono::milliseconds first_pause{100};              ///< after a failed replay; doubles each time
  std::chrono::milliseconds longest_pause{30'000};         ///< the most of it
  std::chrono::milliseconds parent_pause{30'000};          ///< between replays for unknown parents
  std::uint32_t tries = 5;                                 ///< in vain, before live batches are taken as they come
  feed_rules rules{};
};

}  // namespace cenote::indexer
