#include "services/indexer/service/common_calls.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace cenote::indexer {

namespace {

constexpr std::chrono::seconds settling_time{2};     // for publishers to connect to bound endpoints
constexpr std::chrono::seconds connection_time{10};  // for connections to configured publishers

}  // namespace

result<question_counts*> common_calls::open_counts(const service_parts& parts) {
  if (question_counts* const made = parts.questions.add()) return made;
  return fail(error_code::limit_exceeded, "the service has as many threads as there may be");
}

void common_calls::count(const score_answer& answer, std::chrono::nanoseconds time) noexcept {
  std::uint32_t longest = 0;
  for (const pod_score& each : answer.scores) longest = std::max(longest, each.blocks);
  counts_.add(answer.blocks, longest, time);
}

pod_status common_calls::status_of(const publisher_row& row) {
  return {.pod = row.identity.pod,
          .dp_rank = 0,
          .model = row.identity.model,
          .publisher = row.identity.name,
          .state = name_of(row.mark.state),
          .last_seq = row.last_seq,
          .blocks = {},
          .gaps = row.counters.gaps,
          .replayed = row.counters.replayed,
          .behind_s = row.behind_s};
}

void common_calls::add_metrics(metrics_page& page) const {
  question_counts answered;
  parts_.questions.write_sum(answered);
  page.add_questions(answered);
  page.add_texts(parts_.texts == nullptr ? text_counters{} : parts_.texts->counters());
  if (parts_.pods != nullptr) page.add_pods(parts_.pods->counters());
  if (parts_.server != nullptr) page.add_server(parts_.server->figures());
}

void common_calls::tokenize(std::string_view model, std::string_view prompt, token_receiver done) {
  if (parts_.texts != nullptr) return parts_.texts->tokenize(model, prompt, std::move(done));
  done(fail(error_code::not_running, "there is no tokenizer: ask with token_ids, or set tokenizer.command"));
}

result<void> common_calls::add_publisher(const publisher_settings& settings) {
  publisher_options options{.name = std::string(settings.name),
                            .endpoint = std::string(settings.endpoint),
                            .replay = std::string(settings.replay),
                            .pod = std::string(settings.pod),
                            .model = std::string(settings.model),
                            .node = std::string(settings.node)};
  if (!settings.engine.empty()) {
    const auto engine = enum_named<event_engine>(settings.engine);
    if (!engine) {
      return fail(error_code::invalid_argument,
                  "engine `" + std::string(settings.engine) + "` is unknown; it is auto, vllm, sglang or cenote");
    }
    options.engine = *engine;
  }
  return parts_.events.add(options);
}

result<bool> common_calls::remove_publisher(std::string_view name) {
  auto removed = parts_.events.remove(name);
  if (removed) return true;
  if (removed.error().code() == error_code::invalid_argument) return false;
  return std::unexpected(removed.error());
}

// Publishers that are away do not keep an indexer from being ready for ever, and those that connect to it need a
// moment.
std::string_view common_calls::unready_reason() {
  const auto age = std::chrono::steady_clock::now() - parts_.start;
  if (parts_.pods != nullptr && !parts_.pods->is_listed()) return "pods of Kubernetes have not been listed yet";
  if (age < settling_time && !parts_.events.bound_endpoints().empty()) return "publishers have not connected yet";
  const auto table = parts_.events.publishers();
  if (table->unready > 0) return "first replays of publishers are under way";
  const auto is_awaited = [](const publisher_row& row) {
    return !row.is_bound && row.mark.state == publisher_state::connecting;
  };
  const auto configured = std::ranges::count_if(table->rows, [](const publisher_row& row) { return !row.is_bound; });
  if (static_cast<std::size_t>(configured) < parts_.events.configured()) return "publishers are being connected";
  if (age < connection_time && std::ranges::any_of(table->rows, is_awaited)) return "publishers are being connected";
  return {};
}

}  // namespace cenote::indexer
