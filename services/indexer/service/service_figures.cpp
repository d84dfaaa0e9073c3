#include "services/indexer/service/service_figures.hpp"

#include <algorithm>
#include <vector>

#include "transport/http/metric_families.hpp"

namespace cenote::indexer {

namespace {

constexpr std::size_t most_shown = 4096;  // publishers with series of their own

void add_events(http::metric_families& page, const placement_counters& events) {
  page.figures(events);
  for (const placement_refusal each : enumerators_of(placement_refusal{})) {
    page.counter("cenote_indexer_blocks_refused_total", "Blocks of events that were passed over, by reason.",
                 static_cast<double>(events.refusals(each)), {{"reason", std::string(name_of(each))}});
  }
  for (const event_fault each : enumerators_of(event_fault{})) {
    page.counter("cenote_indexer_events_bad_total", "Events that make no sense, by kind.",
                 static_cast<double>(events.faults[static_cast<std::size_t>(each)]),
                 {{"kind", std::string(name_of(each))}});
  }
}

void add_texts(http::metric_families& page, const text_counters& texts) {
  for (const text_outcome each : enumerators_of(text_outcome{})) {
    page.counter("cenote_indexer_texts_total", "Texts that were to be tokenized, by what became of them.",
                 static_cast<double>(texts.texts.at(static_cast<std::size_t>(each))),
                 {{"outcome", std::string(name_of(each))}});
  }
  page.gauge("cenote_indexer_texts_under_way", "Texts that wait for their tokens.",
             static_cast<double>(texts.under_way));
  page.counter("cenote_indexer_text_seconds_total", "Time until texts had their tokens, or their refusal.",
               texts.seconds);
}

void add_publisher(http::metric_families& page, const publisher_row& row) {
  const http::metric_labels labels{{"publisher", row.identity.name}, {"pod", row.identity.pod}};
  const auto counter = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    page.counter(name, help, static_cast<double>(value), labels);
  };
  counter("cenote_indexer_gaps_total", "Batch numbers that were too high.", row.counters.gaps);
  counter("cenote_indexer_replayed_total", "Batches that replays and snapshots brought.", row.counters.replayed);
  counter("cenote_indexer_restarts_total", "Times that a publisher began anew.", row.counters.restarts);
  counter("cenote_indexer_lost_batches_total", "Batches that cannot be had.", row.counters.lost_batches);
  page.gauge("cenote_indexer_behind_seconds", "For how long a batch has been missing or waiting.", row.behind_s,
             labels);
}

}  // namespace

std::string metrics_page(const writer_figures& figures, const publisher_table& publishers, const text_counters& texts) {
  http::metric_families page;
  page.gauge("cenote_build_info", "1, with the version.", 1.0, {{"version", CENOTE_VERSION}});
  page.figures(index_page{.bytes = figures.index.bytes,
                          .evicted = figures.index.evicted,
                          .evicted_held = figures.index.evicted_held,
                          .bad_batches = figures.bad_batches,
                          .homeless = figures.refused_publishers,
                          .apply_s = static_cast<double>(figures.apply_ns) / 1e9,
                          .publishers = publishers.rows.size(),
                          .replays = publishers.replays,
                          .waiting_bytes = publishers.waiting_bytes});
  add_events(page, figures.events);
  page.figures(publishers.totals);
  add_texts(page, texts);
  for (const publisher_state each : enumerators_of(publisher_state{})) {
    const auto count =
        std::ranges::count_if(publishers.rows, [&](const publisher_row& row) { return row.mark.state == each; });
    page.gauge("cenote_indexer_publishers_by_state", "Publishers, by state.", static_cast<double>(count),
               {{"state", std::string(name_of(each))}});
  }
  for (std::size_t i = 0; i < std::min(publishers.rows.size(), most_shown); ++i)
    add_publisher(page, publishers.rows[i]);
  return page.text();
}

}  // namespace cenote::indexer
