// What the remote tier counts: a member and its row are all that a counter needs.
#pragma once

#include "core/figure.hpp"

namespace cenote::remote {

/// Totals since the worker started.
struct store_counters {
  std::uint64_t put = 0, put_bytes = 0, got = 0, got_bytes = 0, misses = 0, wrong = 0, full = 0, unreachable = 0;
  std::uint64_t dropped = 0, kept_back = 0, removed = 0, unremoved = 0;
};

/// What is under way.
struct store_gauges {
  std::uint64_t putting = 0, putting_bytes = 0, getting = 0, getting_bytes = 0, serving = 0;
};

/// Removals and clears that a backend has not confirmed, and what became of earlier ones.
struct removal_figures {
  std::uint64_t unconfirmed = 0, repeated = 0, dropped = 0, failed_saves = 0;
};

}  // namespace cenote::remote

namespace cenote {

template <>
struct figure_table<remote::store_counters> {
  using all = remote::store_counters;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"remote.counters.put", "cenote_remote_put_total", counter, "blocks", "Blocks put, or there already.", &all::put},
      {"remote.counters.put_bytes", "cenote_remote_put_bytes_total", counter, "bytes", "Bytes of those.",
       &all::put_bytes},
      {"remote.counters.got", "cenote_remote_got_total", counter, "blocks", "Blocks got, and right.", &all::got},
      {"remote.counters.got_bytes", "cenote_remote_got_bytes_total", counter, "bytes", "Bytes of blocks got.",
       &all::got_bytes},
      {"remote.counters.misses", "cenote_remote_misses_total", counter, "blocks",
       "Blocks asked for that were not there.", &all::misses},
      {"remote.counters.wrong", "cenote_remote_wrong_total", counter, "blocks",
       "Values that were not what was put: refused, and deleted.", &all::wrong},
      {"remote.counters.full", "cenote_remote_full_total", counter, "blocks",
       "Blocks not put: no room there, or too large.", &all::full},
      {"remote.counters.unreachable", "cenote_remote_unreachable_total", counter, "transfers",
       "Transfers without an answer in time, or whose connection broke.", &all::unreachable},
      {"remote.counters.dropped", "cenote_remote_dropped_total", counter, "blocks",
       "Blocks not put because no backend was asked: away, its breaker open, or too much on its way.", &all::dropped},
      {"remote.counters.kept_back", "cenote_remote_kept_back_total", counter, "blocks",
       "Blocks that may not leave the machine.", &all::kept_back},
      {"remote.counters.removed", "cenote_remote_removed_total", counter, "blocks",
       "Blocks that a client or an operator removed.", &all::removed},
      {"remote.counters.unremoved", "cenote_remote_unremoved_total", counter, "removals",
       "Removals that a backend did not confirm: copies may remain there.", &all::unremoved},
  });
};
static_assert(rows_are_complete<remote::store_counters>(), "a counter has no row");

template <>
struct figure_table<remote::store_gauges> {
  using all = remote::store_gauges;
  static constexpr auto gauge = figure_kind::gauge;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"remote.putting", "cenote_remote_putting", gauge, "blocks", "Blocks on their way there.", &all::putting},
      {"remote.putting_bytes", "cenote_remote_putting_bytes", gauge, "bytes", "Bytes on their way there.",
       &all::putting_bytes},
      {"remote.getting", "cenote_remote_getting", gauge, "blocks", "Blocks on their way from there.", &all::getting},
      {"remote.getting_bytes", "cenote_remote_getting_bytes", gauge, "bytes", "Bytes on their way from there.",
       &all::getting_bytes},
      {"remote.serving", "cenote_remote_serving", gauge, "backends", "Backends that answer.", &all::serving},
  });
};
static_assert(rows_are_complete<remote::store_gauges>(), "a gauge has no row");

template <>
struct figure_table<remote::removal_figures> {
  using all = remote::removal_figures;
  static constexpr auto counter = figure_kind::counter;
  static constexpr auto rows = std::to_array<figure<all>>({
      {"remote.backends[].unconfirmed", "cenote_remote_backend_unconfirmed_removals", figure_kind::gauge, "removals",
       "Removals and clears that a backend has not confirmed: they are asked for again.", &all::unconfirmed},
      {"remote.backends[].repeated_removals", "cenote_remote_backend_repeated_removals_total", counter, "removals",
       "Removals asked for again.", &all::repeated},
      {"remote.backends[].dropped_removals", "cenote_remote_backend_dropped_removals_total", counter, "removals",
       "Removals that are not repeated any more, since too many wait: copies may remain there.", &all::dropped},
      {"remote.backends[].failed_saves", "cenote_remote_backend_failed_saves_total", counter, "saves",
       "Times that the file of unconfirmed removals in `remote.state_dir` could not be written: it is tried again.",
       &all::failed_saves},
  });
};
static_assert(rows_are_complete<remote::removal_figures>(), "a figure has no row");

}  // namespace cenote
