#include "services/indexer/service/shared_calls.hpp"

#include <algorithm>
#include <chrono>
#include <future>

#include "services/indexer/backends/pod_entry.hpp"

namespace cenote::indexer {

namespace {

constexpr std::chrono::seconds clear_limit{1};

}  // namespace

result<std::unique_ptr<shared_calls>> shared_calls::make(const service_parts& parts, const shared_index_parts& index) {
  auto questions = shared_scorer::make(index.access, index.processor, index.facts, index.counters, index.block_tokens);
  if (!questions) return std::unexpected(questions.error());
  const auto counts = open_counts(parts);
  if (!counts) return std::unexpected(counts.error());
  return std::unique_ptr<shared_calls>(new shared_calls(parts, index, std::move(*questions), **counts));
}

result<void> shared_calls::check_lists(const score_question& question) {
  if (!question.has_lists()) return {};  // sizes may cost a round trip
  return indexer::check_lists(question, questions_->block_tokens_of(question));
}

result<score_answer> shared_calls::score(const score_question& question) {
  if (auto checked = check_lists(question); !checked) return std::unexpected(checked.error());
  return counted_score(*questions_, question);
}

result<block_keys_answer> shared_calls::keys(const score_question& question) {
  if (auto checked = check_lists(question); !checked) return std::unexpected(checked.error());
  const std::uint32_t size = questions_->block_tokens_of(question);
  if (size == 0) return block_keys_answer{};
  return block_keys_answer{questions_->keys_of(question), size};
}

result<void> shared_calls::lookup(std::span<const std::uint64_t> keys, const holder_visitor& visit) {
  std::size_t sum = 0;
  questions_->lookup(keys, [&](std::span<const shared_holder> holders) {
    sum += holders.size();
    if (sum > question_limits::holders) return;
    holders_.clear();
    for (const shared_holder& each : holders) holders_.push_back({each.pod, 0, each.medium});
    visit(holders_);
  });
  return check_holders(sum);
}

std::string_view shared_calls::medium_name(medium_number medium) const {
  return questions_->medium_name(medium);
}

result<void> shared_calls::pods(const pod_visitor& visit) {
  const auto table = parts().events.publishers();
  const auto sheet = index_.facts.sheet();
  for (const publisher_row& row : table->rows) {
    pod_status status = status_of(row);
    const auto degraded = sheet->degraded.find(row.identity.model);
    const bool is_degraded = degraded != sheet->degraded.end() && degraded->second.contains(row.identity.pod);
    if (is_degraded && row.mark.state == publisher_state::live) status.state = name_of(publisher_state::degraded);
    visit(status);
  }
  return {};
}

result<std::unique_ptr<pod_dump>> shared_calls::dump(std::string_view /*pod*/) {
  return fail(error_code::unsupported, "an index on a Redis server has no dump; right would be index.backend = memory");
}

result<bool> shared_calls::clear(std::string_view pod, std::string_view medium) {
  if (pod.empty() || pod.size() > most_entry_name || medium.size() > most_entry_name) {
    return fail(error_code::invalid_argument, "names of pods and tiers have 1 to 256 bytes");
  }
  auto done = std::make_shared<std::promise<void>>();
  auto end = done->get_future();
  if (auto posted = index_.writer.clear_pod(pod, medium, [done] { done->set_value(); }); !posted) {
    return std::unexpected(posted.error());
  }
  (void)end.wait_for(clear_limit);
  return true;
}

result<std::uint32_t> shared_calls::speculate(const speculation& /*sent*/) {
  return fail(error_code::unsupported,
              "an index on a Redis server takes no expected blocks; right would be index.backend = memory");
}

void shared_calls::write_metrics(std::string& out) {
  const shared_figures written = index_.writer.figures();
  metrics_page page(parts().names);
  page.add_index({.events = written.events,
                  .bad_batches = written.bad_batches,
                  .refused_publishers = 0,
                  .apply_ns = written.apply_ns},
                 *parts().events.publishers());
  add_metrics(page);
  const shared_counters& of = index_.counters;
  page.add_shared({.serving = of.is_serving ? 1U : 0U,
                   .commands = of.commands,
                   .failures = of.failures,
                   .connections = of.connections,
                   .refused = of.refused,
                   .waiting_bytes = of.waiting_bytes,
                   .dropped_batches = of.dropped_batches,
                   .rebuilt_publishers = of.rebuilt_publishers,
                   .unanswered = of.unanswered,
                   .strange_fields = of.strange_fields});
  out += page.text();
}

std::string_view shared_calls::unready_reason() {
  if (!index_.counters.is_serving) return "the Redis server of the index does not answer";
  return common_calls::unready_reason();
}

}  // namespace cenote::indexer
