// The tokenizer's client. gRPC's own threads call back.
#include <grpcpp/grpcpp.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <unordered_map>
#include <utility>
#include <vector>

#include "services/indexer/http/body_reader.hpp"
#include "services/indexer/text/text_tokenizer.hpp"
#include "services/indexer/text/tokenization.grpc.pb.h"

namespace cenote::indexer {

namespace {

using std::chrono::steady_clock;

constexpr int most_answer_bytes = 32 << 20;  // tokens and offsets of the longest question
constexpr int first_pause_ms = 100;          // between attempts to connect
constexpr int longest_pause_ms = 1'000;

struct text_call {
  grpc::ClientContext context;
  tokenization::TokenizeRequest question;
  tokenization::TokenizeResponse answer;
  token_receiver done;
  steady_clock::time_point start = steady_clock::now();
};

std::shared_ptr<grpc::Channel> channel_to(const std::string& socket) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(most_answer_bytes);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, first_pause_ms);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, longest_pause_ms);
  return grpc::CreateCustomChannel("unix:" + socket, grpc::InsecureChannelCredentials(), arguments);
}

std::unexpected<error> refusal_of(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      return fail(error_code::deadline_exceeded, "the tokenizer does not answer in time; ask with token_ids");
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
      return fail(error_code::limit_exceeded, "the tokenizer refuses the text: " + status.error_message());
    // llm-d's tokenizer fails so where it does not know a model.
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::UNKNOWN:
    case grpc::StatusCode::INVALID_ARGUMENT:
    case grpc::StatusCode::NOT_FOUND:
      return fail(error_code::invalid_argument, "the tokenizer refuses the text: " + status.error_message());
    default: return fail(error_code::not_running, "the tokenizer is away; ask with token_ids");
  }
}

result<std::vector<std::uint32_t>> tokens_of(const grpc::Status& status, const tokenization::TokenizeResponse& answer) {
  if (!status.ok()) return refusal_of(status);
  if (!answer.success()) {
    return fail(error_code::invalid_argument, "the tokenizer refuses the text: " + answer.error_message());
  }
  const auto& ids = answer.input_ids();
  if (static_cast<std::size_t>(ids.size()) > body_reader::most_tokens) {
    return fail(error_code::invalid_argument, "the text has " + std::to_string(ids.size()) +
                                                  " tokens; a question has " +
                                                  std::to_string(body_reader::most_tokens) + " at most");
  }
  return std::vector<std::uint32_t>(ids.begin(), ids.end());
}

text_outcome outcome_of(const result<std::vector<std::uint32_t>>& tokens) {
  if (tokens) return text_outcome::answered;
  switch (tokens.error().code()) {
    case error_code::deadline_exceeded: return text_outcome::late;
    case error_code::limit_exceeded: return text_outcome::overflow;
    case error_code::invalid_argument: return text_outcome::refused;
    default: return text_outcome::away;
  }
}

class grpc_tokenizer final : public text_tokenizer {
 public:
  explicit grpc_tokenizer(const tokenizer_options& options)
      : options_(options), stub_(tokenization::TokenizationService::NewStub(channel_to(options.socket))) {}
  ~grpc_tokenizer() override { end(); }

  void tokenize(std::string_view model, std::string_view text, token_receiver done) override {
    const auto made = std::make_shared<text_call>();
    made->question.set_model_name(model.data(), model.size());
    made->question.set_input(text.data(), text.size());
    made->question.set_add_special_tokens(true);
    made->done = std::move(done);
    made->context.set_deadline(std::chrono::system_clock::now() + options_.time_limit);
    if (auto admitted = admit(made); !admitted) return answer(*made, std::unexpected(admitted.error()));
    stub_->async()->Tokenize(&made->context, &made->question, &made->answer,
                             [this, call = made.get()](const grpc::Status& status) { finish(*call, status); });
  }

  text_counters counters() const noexcept override {
    text_counters sums;
    for (std::size_t i = 0; i < text_outcomes; ++i) sums.texts[i] = texts_[i].load(std::memory_order_relaxed);
    sums.under_way = under_way_.load(std::memory_order_relaxed);
    sums.seconds = static_cast<double>(spent_ns_.load(std::memory_order_relaxed)) / 1e9;
    return sums;
  }

  void stop() noexcept override { end(); }

 private:
  result<void> admit(const std::shared_ptr<text_call>& call) {
    const std::scoped_lock lock(mutex_);
    if (is_stopped_) return fail(error_code::not_running, "the indexer ends");
    const std::size_t bytes = call->question.input().size();
    if (calls_.size() >= options_.most_texts || bytes > options_.most_bytes - bytes_) {
      return fail(error_code::limit_exceeded, "too many texts are being tokenized; ask later, or with token_ids");
    }
    bytes_ += bytes;
    calls_.emplace(call.get(), call);
    under_way_.store(calls_.size(), std::memory_order_relaxed);
    return {};
  }

  // A call's context has a part of the channel, and a thread that calls back must not be the one that ends the channel:
  // gRPC would wait for that thread there. So the call goes before end() may return.
  void finish(text_call& call, const grpc::Status& status) {
    answer(call, tokens_of(status, call.answer));
    std::unique_lock lock(mutex_);
    bytes_ -= call.question.input().size();
    auto ended = calls_.extract(&call);
    ++ending_calls_;
    under_way_.store(calls_.size(), std::memory_order_relaxed);
    lock.unlock();
    ended = {};
    lock.lock();
    --ending_calls_;
    if (calls_.empty() && ending_calls_ == 0) empty_.notify_all();
  }

  void answer(text_call& call, result<std::vector<std::uint32_t>> tokens) {
    texts_.at(static_cast<std::size_t>(outcome_of(tokens))).fetch_add(1, std::memory_order_relaxed);
    const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(steady_clock::now() - call.start);
    spent_ns_.fetch_add(static_cast<std::uint64_t>(spent.count()), std::memory_order_relaxed);
    call.done(std::move(tokens));
  }

  void end() noexcept {
    std::unique_lock lock(mutex_);
    is_stopped_ = true;
    const auto calls = calls_;
    lock.unlock();
    for (const auto& [call, owner] : calls) call->context.TryCancel();
    lock.lock();
    empty_.wait(lock, [this] { return calls_.empty() && ending_calls_ == 0; });
  }

  tokenizer_options options_;
  std::unique_ptr<tokenization::TokenizationService::Stub> stub_;
  std::array<std::atomic<std::uint64_t>, text_outcomes> texts_{};
  std::atomic<std::uint64_t> spent_ns_{0}, under_way_{0};
  std::mutex mutex_;  ///< of what follows; gRPC's threads take it, and those that ask
  std::condition_variable empty_;
  std::unordered_map<text_call*, std::shared_ptr<text_call>> calls_;
  std::size_t ending_calls_ = 0;  ///< calls that are out of the table and not gone
  std::size_t bytes_ = 0;         ///< of the texts of all calls
  bool is_stopped_ = false;
};

}  // namespace

result<std::unique_ptr<text_tokenizer>> open_tokenizer(const tokenizer_options& options) {
  return std::make_unique<grpc_tokenizer>(options);
}

}  // namespace cenote::indexer
