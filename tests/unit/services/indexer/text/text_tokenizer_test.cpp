// The tokenizer's client beside a server in the same process, whose answers are the test's.
#include "services/indexer/text/text_tokenizer.hpp"

#include <grpcpp/grpcpp.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "services/indexer/text/tokenization.grpc.pb.h"
#include "tests/unit/services/indexer/text/own_folder.hpp"

namespace cenote::indexer::text_tokenizer_test {

namespace {

using tokens_result = result<std::vector<std::uint32_t>>;
using namespace std::chrono_literals;

constexpr auto unreached = 1h;

class fake_service final : public tokenization::TokenizationService::Service {
 public:
  using handler = std::function<grpc::Status(const tokenization::TokenizeRequest&, tokenization::TokenizeResponse&)>;

  explicit fake_service(const std::string& socket, handler answer) : answer_(std::move(answer)) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket, grpc::InsecureServerCredentials());
    builder.SetMaxReceiveMessageSize(-1);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~fake_service() override {
    server_->Shutdown();
    server_->Wait();
  }

  grpc::Status Tokenize(grpc::ServerContext* /*context*/, const tokenization::TokenizeRequest* request,
                        tokenization::TokenizeResponse* response) override {
    return answer_(*request, *response);
  }

 private:
  handler answer_;
  std::unique_ptr<grpc::Server> server_;
};

struct fixture {
  own_folder folder;
  std::string socket = (folder.path() / "s").string();

  std::unique_ptr<text_tokenizer> open(std::chrono::milliseconds time_limit = unreached, std::size_t most_texts = 64,
                                       std::size_t most_bytes = 1 << 20) const {
    auto opened = open_tokenizer(
        {.socket = socket, .time_limit = time_limit, .most_texts = most_texts, .most_bytes = most_bytes});
    BOOST_TEST_REQUIRE(opened.has_value());
    return std::move(*opened);
  }
};

std::future<tokens_result> begin(text_tokenizer& texts, std::string_view text) {
  auto answer = std::make_shared<std::promise<tokens_result>>();
  texts.tokenize("org/model", text, [answer](tokens_result tokens) { answer->set_value(std::move(tokens)); });
  return answer->get_future();
}

tokens_result ask(text_tokenizer& texts, std::string_view text) {
  return begin(texts, text).get();
}

error_code code_of(const tokens_result& answer) {
  BOOST_TEST_REQUIRE(!answer.has_value());
  return answer.error().code();
}

std::uint64_t count_of(const text_tokenizer& texts, text_outcome outcome) {
  return texts.counters().texts.at(static_cast<std::size_t>(outcome));
}

grpc::Status answer_with_length(const tokenization::TokenizeRequest& request,
                                tokenization::TokenizeResponse& response) {
  response.set_success(true);
  response.add_input_ids(static_cast<std::uint32_t>(request.input().size()));
  return grpc::Status::OK;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(text_tokenizer_suite, fixture)

BOOST_AUTO_TEST_CASE(a_text_has_the_tokens_of_a_completion) {
  const fake_service service(socket, [](const auto& request, auto& response) {
    BOOST_TEST(request.model_name() == "org/model");
    BOOST_TEST(request.input() == "hello");
    BOOST_TEST(request.add_special_tokens());
    response.set_success(true);
    for (const std::uint32_t each : {1U, 200'000U, 3U}) response.add_input_ids(each);
    return grpc::Status::OK;
  });
  const auto texts = open();
  BOOST_TEST((ask(*texts, "hello").value() == std::vector<std::uint32_t>{1, 200'000, 3}));
  BOOST_TEST(count_of(*texts, text_outcome::answered) == 1U);
  BOOST_TEST(texts->counters().seconds > 0);
}

BOOST_AUTO_TEST_CASE(a_refusal_is_an_invalid_argument_with_its_words) {
  const fake_service service(socket, [](const auto&, auto& response) {
    response.set_error_message("there is no such model");
    return grpc::Status::OK;
  });
  const auto texts = open();
  const auto answer = ask(*texts, "hello");
  BOOST_TEST((code_of(answer) == error_code::invalid_argument));
  BOOST_TEST(answer.error().message().contains("there is no such model"));
  BOOST_TEST(count_of(*texts, text_outcome::refused) == 1U);
}

BOOST_AUTO_TEST_CASE(a_status_of_grpc_is_an_error_of_its_kind) {
  grpc::StatusCode code{};
  const fake_service service(socket, [&](const auto&, auto&) { return grpc::Status(code, "words"); });
  const auto texts = open();
  const std::vector<std::pair<grpc::StatusCode, error_code>> expected{
      {grpc::StatusCode::INTERNAL, error_code::invalid_argument},
      {grpc::StatusCode::RESOURCE_EXHAUSTED, error_code::limit_exceeded},
      {grpc::StatusCode::DEADLINE_EXCEEDED, error_code::deadline_exceeded},
      {grpc::StatusCode::UNIMPLEMENTED, error_code::not_running},
      {grpc::StatusCode::UNAVAILABLE, error_code::not_running}};
  for (const auto& [status, error] : expected) {
    code = status;
    BOOST_TEST((code_of(ask(*texts, "hello")) == error));
  }
}

BOOST_AUTO_TEST_CASE(more_tokens_than_a_question_may_have_are_refused) {
  const fake_service service(socket, [](const auto&, auto& response) {
    response.set_success(true);
    for (std::uint32_t i = 0; i < (1U << 20U) + 1; ++i) response.add_input_ids(i);
    return grpc::Status::OK;
  });
  const auto texts = open();
  BOOST_TEST((code_of(ask(*texts, "hello")) == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(texts_fail_while_the_tokenizer_is_away_and_no_longer) {
  const auto texts = open();
  BOOST_TEST((code_of(ask(*texts, "hello")) == error_code::not_running));
  BOOST_TEST(count_of(*texts, text_outcome::away) == 1U);
  for (int i = 0; i < 2; ++i) {
    const fake_service service(socket, answer_with_length);
    tokens_result answer = ask(*texts, "hello");
    while (!answer) answer = ask(*texts, "hello");
    BOOST_TEST(answer->front() == 5U);
  }
}

BOOST_AUTO_TEST_CASE(a_tokenizer_that_hangs_costs_each_text_its_time_limit) {
  std::promise<void> end;
  const auto ended = end.get_future().share();
  const fake_service service(socket, [&](const auto& request, auto& response) {
    ended.wait();
    return answer_with_length(request, response);
  });
  const auto texts = open(50ms);
  BOOST_TEST((code_of(ask(*texts, "hello")) == error_code::deadline_exceeded));
  BOOST_TEST(count_of(*texts, text_outcome::late) == 1U);
  end.set_value();
}

BOOST_AUTO_TEST_CASE(texts_beyond_the_bounds_are_refused_at_once) {
  std::promise<void> end;
  const auto ended = end.get_future().share();
  const fake_service service(socket, [&](const auto& request, auto& response) {
    ended.wait();
    return answer_with_length(request, response);
  });
  const auto texts = open(unreached, 2, 100);
  auto first = begin(*texts, std::string(60, 'a'));
  BOOST_TEST((code_of(ask(*texts, std::string(41, 'a'))) == error_code::limit_exceeded));
  auto second = begin(*texts, std::string(40, 'a'));
  BOOST_TEST((code_of(ask(*texts, "")) == error_code::limit_exceeded));
  BOOST_TEST(count_of(*texts, text_outcome::overflow) == 2U);
  end.set_value();
  BOOST_TEST(first.get().value().front() == 60U);
  BOOST_TEST(second.get().value().front() == 40U);
}

BOOST_AUTO_TEST_CASE(the_end_fails_what_is_under_way_and_what_comes_later) {
  std::promise<void> begun;
  std::promise<void> end;
  const auto ended = end.get_future().share();
  const fake_service service(socket, [&](const auto& request, auto& response) {
    begun.set_value();
    ended.wait();
    return answer_with_length(request, response);
  });
  const auto texts = open();
  auto answer = begin(*texts, "hello");
  begun.get_future().wait();
  texts->stop();
  BOOST_TEST((answer.wait_for(0s) == std::future_status::ready));
  BOOST_TEST((code_of(answer.get()) == error_code::not_running));
  BOOST_TEST((code_of(ask(*texts, "hello")) == error_code::not_running));
  end.set_value();
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer::text_tokenizer_test
