#include "services/indexer/service/service_figures.hpp"

#include <algorithm>
#include <vector>

#include "core/version.hpp"

namespace cenote::indexer {

namespace {

constexpr std::size_t most_shown = 4096;         // publishers with series of their own
constexpr std::size_t most_block_rows = 16'384;  // ranks of pods and media

}  // namespace

void metrics_page::add_events(const placement_counters& events) {
  page_.figures(events);
  add_alias("kvcache_index_admissions_total", "As cenote_indexer_blocks_stored_total.", events.stored);
  add_alias("kvcache_index_evictions_total", "As cenote_indexer_blocks_removed_total.", events.removed);
  for (const placement_refusal each : enumerators_of(placement_refusal{})) {
    page_.counter("cenote_indexer_blocks_refused_total", "Blocks of events that were passed over, by reason.",
                  static_cast<double>(events.refusals(each)), {{"reason", std::string(name_of(each))}});
  }
  for (const event_fault each : enumerators_of(event_fault{})) {
    page_.counter("cenote_indexer_events_bad_total", "Events that make no sense, by kind.",
                  static_cast<double>(events.faults[static_cast<std::size_t>(each)]),
                  {{"kind", std::string(name_of(each))}});
  }
}

void metrics_page::add_texts(const text_counters& texts) {
  for (const text_outcome each : enumerators_of(text_outcome{})) {
    page_.counter("cenote_indexer_texts_total", "Texts that were to be tokenized, by what became of them.",
                  static_cast<double>(texts.texts.at(static_cast<std::size_t>(each))),
                  {{"outcome", std::string(name_of(each))}});
  }
  page_.gauge("cenote_indexer_texts_under_way", "Texts that wait for their tokens.",
              static_cast<double>(texts.under_way));
  page_.counter("cenote_indexer_text_seconds_total", "Time until texts had their tokens, or their refusal.",
                texts.seconds);
}

void metrics_page::add_publisher(const publisher_row& row) {
  const http::metric_labels labels{{"publisher", row.identity.name}, {"pod", row.identity.pod}};
  const auto counter = [&](std::string_view name, std::string_view help, std::uint64_t value) {
    page_.counter(name, help, static_cast<double>(value), labels);
  };
  counter("cenote_indexer_gaps_total", "Batch numbers that were too high.", row.counters.gaps);
  counter("cenote_indexer_replayed_total", "Batches that replays and snapshots brought.", row.counters.replayed);
  counter("cenote_indexer_restarts_total", "Times that a publisher began anew.", row.counters.restarts);
  counter("cenote_indexer_lost_batches_total", "Batches that cannot be had.", row.counters.lost_batches);
  page_.gauge("cenote_indexer_behind_seconds", "For how long a batch has been missing or waiting.", row.behind_s,
              labels);
}

void metrics_page::add_index(const writer_figures& figures, const publisher_table& publishers) {
  page_.gauge("cenote_build_info", "1, with the version.", 1.0, {{"version", std::string(product_version())}});
  page_.figures(index_page{.bytes = figures.index.bytes,
                           .evicted = figures.index.evicted,
                           .evicted_held = figures.index.evicted_held,
                           .bad_batches = figures.bad_batches,
                           .homeless = figures.refused_publishers,
                           .apply_s = static_cast<double>(figures.apply_ns) / 1e9,
                           .publishers = publishers.rows.size(),
                           .replays = publishers.replays,
                           .waiting_bytes = publishers.waiting_bytes});
  add_events(figures.events);
  page_.figures(publishers.totals);
  for (const publisher_state each : enumerators_of(publisher_state{})) {
    const auto count =
        std::ranges::count_if(publishers.rows, [&](const publisher_row& row) { return row.mark.state == each; });
    page_.gauge("cenote_indexer_publishers_by_state", "Publishers, by state.", static_cast<double>(count),
                {{"state", std::string(name_of(each))}});
  }
  for (std::size_t i = 0; i < std::min(publishers.rows.size(), most_shown); ++i) add_publisher(publishers.rows[i]);
}

void metrics_page::add_questions(const question_counts& answered) {
  page_.seconds("cenote_indexer_question_seconds", "Times from a prompt's tokens or keys to its scores.",
                answered.times());
  page_.counter("cenote_indexer_questions_found_total", "Questions for which some pod has the first block.",
                static_cast<double>(answered.hits()));
  page_.counter("cenote_indexer_question_blocks_total", "Blocks of the prompts that were asked for.",
                static_cast<double>(answered.blocks()));
  page_.counter("cenote_indexer_question_found_blocks_total",
                "Of those, blocks of the longest prefix that some pod has.",
                static_cast<double>(answered.hit_blocks()));
  add_alias("kvcache_index_lookup_requests_total", "As cenote_indexer_question_seconds_count.",
            answered.times().count());
  add_alias("kvcache_index_lookup_hits_total", "As cenote_indexer_question_found_blocks_total.", answered.hit_blocks());
  add_alias("kvcache_index_max_pod_hit_count_total", "As cenote_indexer_question_found_blocks_total.",
            answered.hit_blocks());
  if (names_ == metric_names::own_llmd) {
    page_.seconds("kvcache_index_lookup_latency_seconds", "As cenote_indexer_question_seconds.", answered.times());
  }
}

void metrics_page::add_blocks(const pod_rank& member, std::string_view model, std::string_view medium,
                              std::uint64_t blocks) {
  if (++block_rows_ > most_block_rows) return;
  page_.gauge("cenote_indexer_blocks",
              "Blocks that a rank of a pod has in a tier; a block of several cache groups "
              "counts for each.",
              static_cast<double>(blocks),
              {{"pod", std::string(member.pod())},
               {"model", std::string(model)},
               {"dp_rank", std::to_string(member.rank)},
               {"tier", std::string(medium)}});
}

void metrics_page::add_server(const http::request_server_figures& server) {
  page_.figures(server);
  const auto answers = [&](std::string_view code, std::uint64_t count) {
    page_.counter("cenote_indexer_http_answers_total", "Answers over HTTP, by the class of their status.",
                  static_cast<double>(count), {{"code", std::string(code)}});
  };
  answers("2xx", server.succeeded);
  answers("4xx", server.client_errors);
  answers("5xx", server.server_errors);
}

void metrics_page::add_alias(std::string_view name, std::string_view help, std::uint64_t value) {
  if (names_ == metric_names::own_llmd) page_.counter(name, help, static_cast<double>(value));
}

}  // namespace cenote::indexer
