#include "services/indexer/grpc/rpc_answers.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "services/indexer/grpc/question_message.hpp"

namespace cenote::indexer {

namespace {

/// False: the call ends, since its message is another one.
template <class Message>
bool read_message(rpc::open_call& call, Message& message) {
  const std::string_view bytes = call.request();
  if (message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return true;
  call.refuse(rpc::call_status::invalid_argument,
              "the message is no " + std::string(Message::descriptor()->full_name()));
  return false;
}

template <class Score>
void write_tiers(const pod_score& score, const indexer_calls& calls, Score& entry) {
  for (std::size_t medium = 0; medium < score.by_medium.size(); ++medium) {
    if (score.by_medium[medium] == 0) continue;
    (*entry.mutable_tiers())[std::string(calls.medium_name(static_cast<medium_number>(medium)))] =
        score.by_medium[medium];
  }
}

messages::ScoreTokensResponse response_of(const score_answer& answer, const indexer_calls& calls) {
  messages::ScoreTokensResponse response;
  for (const pod_score& each : answer.scores) {
    messages::TokenPodScore& entry = *response.add_scores();
    entry.set_pod(std::string(each.pod));
    entry.set_score(each.score);
    entry.set_dp_rank(each.dp_rank);
    entry.set_blocks(each.blocks);
    entry.set_tokens(each.tokens);
    write_tiers(each, calls, entry);
  }
  response.set_blocks(answer.blocks);
  response.set_block_tokens(answer.block_tokens);
  for (const std::string_view each : answer.degraded) response.add_degraded(std::string(each));
  return response;
}

messages::GetPodScoresResponse pod_scores_of(const score_answer& answer) {
  messages::GetPodScoresResponse response;
  for (const pod_score& each : answer.scores) {
    messages::PodScore& entry = *response.add_scores();
    entry.set_pod(std::string(each.pod));
    entry.set_score(each.score);
    entry.set_data_parallel_rank(each.dp_rank);
  }
  return response;
}

}  // namespace

struct rpc_answers::route {
  std::string_view method;
  void (rpc_answers::*answer)(const call_pointer&);
};

std::span<const rpc_answers::route> rpc_answers::routes() noexcept {
  static constexpr std::array<route, 4> all{{
      {"/indexer.v1.IndexerService/GetPodScores", &rpc_answers::get_pod_scores},
      {"/indexer.v1.IndexerService/ScoreTokens", &rpc_answers::score_tokens},
      {"/indexer.v1.IndexerService/Lookup", &rpc_answers::look_up},
      {"/indexer.v1.IndexerService/WatchPods", &rpc_answers::watch_pods},
  }};
  return all;
}

bool rpc_answers::has_method(std::string_view method) const noexcept {
  return std::ranges::find(routes(), method, &route::method) != routes().end();
}

void rpc_answers::handle(std::string_view method, const call_pointer& call) {
  const auto found = std::ranges::find(routes(), method, &route::method);
  if (found != routes().end()) (this->*found->answer)(call);
}

/// A question by its text. The tokens may come before the place of the thread that has asked for them is given back, or
/// long after it: whichever of the two is second goes on, so that no thread needs two places.
class rpc_answers::text_question {
 public:
  text_question(calls_pool& pool, call_pointer call) : pool_(pool), call_(std::move(call)) {}

  [[nodiscard]] messages::GetPodScoresRequest& request() noexcept { return request_; }
  void set_tokens(result<std::vector<std::uint32_t>> tokens) {
    tokens_ = std::move(tokens);
    finish_part();
  }
  void finish_part() {
    if (parts_.fetch_sub(1, std::memory_order_acq_rel) == 1) answer();
  }

 private:
  void answer() {
    if (!tokens_) return call_->refuse(tokens_.error());
    const auto place = pool_.take();
    auto question = question_of(request_, *place);
    if (!question) return call_->refuse(question.error());
    question->tokens = *tokens_;
    const auto scored = place->calls->score(*question);
    if (!scored) return call_->refuse(scored.error());
    call_->finish(pod_scores_of(*scored).SerializeAsString());
  }

  calls_pool& pool_;
  call_pointer call_;
  messages::GetPodScoresRequest request_;
  result<std::vector<std::uint32_t>> tokens_;
  std::atomic<int> parts_{2};
};

void rpc_answers::get_pod_scores(const call_pointer& call) {
  const auto asked = std::make_shared<text_question>(pool_, call);
  if (!read_message(*call, asked->request())) return;
  {
    const auto place = pool_.take();
    if (const auto checked = question_of(asked->request(), *place); !checked) return call->refuse(checked.error());
    place->calls->tokenize(
        asked->request().model_name(), asked->request().prompt(),
        [asked](result<std::vector<std::uint32_t>> tokens) { asked->set_tokens(std::move(tokens)); });
  }
  asked->finish_part();
}

void rpc_answers::score_tokens(const call_pointer& call) {
  messages::ScoreTokensRequest request;
  if (!read_message(*call, request)) return;
  const auto place = pool_.take();
  const auto question = question_of(request, *place);
  if (!question) return call->refuse(question.error());
  const auto scored = place->calls->score(*question);
  if (!scored) return call->refuse(scored.error());
  call->finish(response_of(*scored, *place->calls).SerializeAsString());
}

void rpc_answers::look_up(const call_pointer& call) {
  messages::LookupRequest request;
  if (!read_message(*call, request)) return;
  if (const auto checked = check_keys(request); !checked) return call->refuse(checked.error());
  const auto place = pool_.take();
  messages::LookupResponse response;
  const std::span<const std::uint64_t> keys(request.block_keys().data(),
                                            static_cast<std::size_t>(request.block_keys_size()));
  const auto visited = place->calls->lookup(keys, [&](std::span<const named_holder> holders) {
    messages::HeldBlock& block = *response.add_blocks();
    block.set_key(keys[static_cast<std::size_t>(response.blocks_size() - 1)]);
    for (const named_holder& each : holders) {
      messages::Holder& entry = *block.add_holders();
      entry.set_pod(std::string(each.pod));
      entry.set_dp_rank(each.dp_rank);
      entry.set_tier(std::string(place->calls->medium_name(each.medium)));
    }
  });
  if (!visited) return call->refuse(visited.error());
  call->finish(response.SerializeAsString());
}

void rpc_answers::watch_pods(const call_pointer& call) {
  messages::WatchPodsRequest request;
  if (read_message(*call, request)) watch_.add(call);
}

}  // namespace cenote::indexer
