// What the planner of prefetches counts and measures: a member and its row are all that a figure needs.
#pragma once

#include <array>

#include "core/enum_names.hpp"
#include "core/figure.hpp"
#include "tiers/transfer.hpp"

namespace cenote::prefetch {

/// Why a prefetch ended; each counts as exactly one.
enum class reason : std::uint8_t {
  complete,         ///< the whole chain is in DRAM
  absent,           ///< what is below is in DRAM; then comes a key that no tier has, or whose copy was lost
  below_threshold,  ///< too few tokens below DRAM: nothing was loaded
  cannot_win,       ///< recomputing is faster: nothing was loaded
  cut,              ///< recomputing the rest became faster
  timeout,          ///< the policy's time was over
  stopped,          ///< best_effort, and the engine was ready
  cancelled,        ///< by its client
  session_gone,     ///< its client died or left
  no_space,         ///< nothing could be evicted for it
  budget,           ///< it alone would have needed more than a budget
};
CENOTE_ENUM_NAMES(reason, complete, absent, below_threshold, cannot_win, cut, timeout, stopped, cancelled, session_gone,
                  no_space, budget);
inline constexpr std::size_t reasons = enum_size<reason>;

/// Of one tier below, as one that loads come from.
struct source_status {
  std::uint64_t bytes_in_flight = 0;
  double bytes_per_s = 0;  ///< 0: never measured
  double latency_s = 0;
  double measured_age_s = 0;
  std::uint64_t loaded = 0;               ///< blocks
  std::uint64_t cannot_win = 0, cut = 0;  ///< prefetches that ended because it was too slow
};

struct status {
  std::uint64_t started = 0, finished = 0;
  std::uint64_t wanted = 0, loaded = 0, lost = 0, read_ahead = 0;
  std::uint64_t refused = 0, unclaimed = 0;
  std::array<std::uint64_t, reasons> by_reason{};
  std::uint64_t bytes_in_flight = 0, waiting = 0, held = 0;
  double bytes_per_s = 0;  ///< 0: never measured
  double latency_s = 0;
  double measured_age_s = 0;
  std::uint64_t compared = 0, probes = 0;
  double waited_s = 0, recompute_s = 0, saved_s = 0, lost_s = 0;  ///< of compared ones that were answered
  std::uint64_t questions = 0, answered = 0, found = 0;
  std::uint64_t follows = 0, followed = 0;
  std::array<source_status, max_edges> sources{};  ///< by edge; those above are of all, or of the nearest
};

}  // namespace cenote::prefetch

namespace cenote {

template <>
struct figure_table<prefetch::status> {
  using all = prefetch::status;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"prefetch.started", "cenote_prefetch_started_total", counter, "prefetches", "Prefetches that were begun.",
       &all::started},
      {"prefetch.finished", "", counter, "prefetches", "Prefetches that ended.", &all::finished},
      {"prefetch.blocks_wanted", "cenote_prefetch_blocks_wanted_total", counter, "blocks", "Blocks of their chains.",
       &all::wanted},
      {"prefetch.blocks_loaded", "cenote_prefetch_blocks_loaded_total", counter, "blocks",
       "Blocks that came up for them.", &all::loaded},
      {"prefetch.blocks_lost", "cenote_prefetch_blocks_lost_total", counter, "blocks",
       "Blocks that were asked for and did not come.", &all::lost},
      {"prefetch.read_ahead", "cenote_prefetch_read_ahead_total", counter, "blocks",
       "Blocks that came up on speculation.", &all::read_ahead},
      {"prefetch.refused", "cenote_prefetch_refused_total", counter, "prefetches",
       "Prefetches of sessions that had too many.", &all::refused},
      {"prefetch.unclaimed", "cenote_prefetch_unclaimed_total", counter, "prefetches",
       "Prefetches whose blocks no client took over in time.", &all::unclaimed},
      {"prefetch.compared", "cenote_prefetch_compared_total", counter, "prefetches",
       "Prefetches that were compared with recomputing.", &all::compared},
      {"prefetch.probes", "cenote_prefetch_probes_total", counter, "windows",
       "Windows that were loaded to measure the device.", &all::probes},
      {"prefetch.questions", "cenote_prefetch_questions_total", counter, "questions",
       "Chains of which tiers without hints were asked what they have.", &all::questions},
      {"prefetch.answered", "cenote_prefetch_questions_answered_total", counter, "questions",
       "Of those, the ones that all of them answered in time.", &all::answered},
      {"prefetch.found", "cenote_prefetch_blocks_found_total", counter, "blocks",
       "Blocks that they said to have, in prefixes.", &all::found},
      {"prefetch.follows", "cenote_prefetch_follows_total", counter, "prefetches",
       "Of the prefetches begun, those that follow a request whose blocks another engine makes.", &all::follows},
      {"prefetch.followed", "cenote_prefetch_blocks_followed_total", counter, "blocks",
       "Blocks of their prefixes, when they ended.", &all::followed},
      {"prefetch.bytes_in_flight", "cenote_prefetch_in_flight_bytes", gauge, "bytes", "Bytes of loads under way.",
       &all::bytes_in_flight},
      {"prefetch.waiting", "cenote_prefetch_waiting", gauge, "prefetches", "Prefetches that are not answered yet.",
       &all::waiting},
      {"prefetch.held", "", gauge, "prefetches", "Answered prefetches whose blocks are kept for their clients.",
       &all::held},
      {"prefetch.bytes_per_s", "cenote_prefetch_bytes_per_second", gauge, "bytes/s",
       "How fast loads came up, as measured last.", &all::bytes_per_s},
      {"prefetch.latency_s", "cenote_prefetch_latency_seconds", gauge, "seconds",
       "Time until the first load of several came, as measured last.", &all::latency_s},
      {"prefetch.measured_age_s", "cenote_prefetch_measured_age_seconds", gauge, "seconds", "Time since a load came.",
       &all::measured_age_s},
      {"prefetch.waited_s", "cenote_prefetch_waited_seconds_total", counter, "seconds",
       "Waited for answers to prefetches that were compared.", &all::waited_s},
      {"prefetch.recompute_s", "cenote_prefetch_recompute_seconds_total", counter, "seconds",
       "What computing all of theirs would have taken.", &all::recompute_s},
      {"prefetch.saved_s", "cenote_prefetch_saved_seconds_total", counter, "seconds",
       "Of that, what came and need not be computed.", &all::saved_s},
      {"prefetch.lost_s", "cenote_prefetch_lost_seconds_total", counter, "seconds",
       "Waited longer than was saved, by those that did.", &all::lost_s},
  });
};

template <>
struct figure_table<prefetch::source_status> {
  using all = prefetch::source_status;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"prefetch.sources[].bytes_in_flight", "cenote_prefetch_source_in_flight_bytes", gauge, "bytes",
       "Bytes of loads under way from this tier below.", &all::bytes_in_flight},
      {"prefetch.sources[].bytes_per_s", "cenote_prefetch_source_bytes_per_second", gauge, "bytes/s",
       "How fast loads came up from there, as measured last.", &all::bytes_per_s},
      {"prefetch.sources[].latency_s", "cenote_prefetch_source_latency_seconds", gauge, "seconds",
       "Time until the first load of several came from there, as measured last.", &all::latency_s},
      {"prefetch.sources[].measured_age_s", "cenote_prefetch_source_measured_age_seconds", gauge, "seconds",
       "Time since a load came from there.", &all::measured_age_s},
      {"prefetch.sources[].loaded", "cenote_prefetch_source_loaded_blocks_total", counter, "blocks",
       "Blocks that came up from there.", &all::loaded},
      {"prefetch.sources[].cannot_win", "cenote_prefetch_source_cannot_win_total", counter, "prefetches",
       "Prefetches for which it was too slow: nothing was loaded.", &all::cannot_win},
      {"prefetch.sources[].cut", "cenote_prefetch_source_cut_total", counter, "prefetches",
       "Prefetches that were cut because it became too slow.", &all::cut},
  });
};
static_assert(rows_are_distinct<prefetch::source_status>() &&
                  figure_table<prefetch::source_status>::rows.size() * sizeof(std::uint64_t) ==
                      sizeof(prefetch::source_status),
              "a figure has no row");

/// All but the arrays have a row.
static_assert(rows_are_distinct<prefetch::status>() &&
                  (figure_table<prefetch::status>::rows.size() + prefetch::reasons) * sizeof(std::uint64_t) +
                          sizeof(prefetch::status::sources) ==
                      sizeof(prefetch::status),
              "a figure has no row");

}  // namespace cenote
