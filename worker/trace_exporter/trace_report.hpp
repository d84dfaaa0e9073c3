// The fate of spans: a member and its row are all that a figure needs.
#pragma once

#include <array>
#include <cstdint>

#include "core/figure.hpp"

namespace cenote {

struct trace_report {
  std::uint64_t exported = 0, waiting = 0;
  std::uint64_t dropped_by_client = 0, dropped_full = 0, dropped_away = 0, dropped_refused = 0, dropped_at_stop = 0;
};

template <>
struct figure_table<trace_report> {
  using all = trace_report;
  static constexpr auto counter = figure_kind::counter;
  static constexpr const char* dropped = "cenote_trace_spans_dropped_total";
  static constexpr const char* help = "Spans that the collector did not get, by why.";
  static constexpr auto rows = std::to_array<figure<all>>({
      {"trace.exported", "cenote_trace_spans_exported_total", counter, "spans", "Spans that the collector took.",
       &all::exported},
      {"trace.waiting", "cenote_trace_spans_waiting", figure_kind::gauge, "spans", "Spans that wait for the collector.",
       &all::waiting},
      {"trace.dropped.client", dropped, counter, "spans", help, &all::dropped_by_client, {"reason", "client"}},
      {"trace.dropped.full", dropped, counter, "spans", help, &all::dropped_full, {"reason", "full"}},
      {"trace.dropped.away", dropped, counter, "spans", help, &all::dropped_away, {"reason", "away"}},
      {"trace.dropped.refused", dropped, counter, "spans", help, &all::dropped_refused, {"reason", "refused"}},
      {"trace.dropped.stop", dropped, counter, "spans", help, &all::dropped_at_stop, {"reason", "stop"}},
  });
};
static_assert(rows_are_complete<trace_report>(), "a figure has no row");

}  // namespace cenote
