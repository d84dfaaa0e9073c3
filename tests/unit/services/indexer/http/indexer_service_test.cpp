#include "services/indexer/http/indexer_service.hpp"

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/allocations.hpp"
#include "tests/unit/services/indexer/http/padded_body.hpp"

using namespace cenote;
using namespace cenote::indexer;
using nlohmann::json;
using namespace std::chrono_literals;

namespace {

/// The last calls, and the answers to the next.
struct call_record {
  std::string calls;
  std::optional<error> failure;
  std::string unready;
  bool has_pod = true;
  token_receiver receiver;
  result<std::vector<std::uint32_t>> tokens = std::vector<std::uint32_t>{11, 12};
};

class recording_dump final : public pod_dump {
 public:
  bool next(const dump_visitor& visit) override {
    const std::array<std::uint64_t, 2> keys{next_, 18446744073709551615U};
    dumped_blocks blocks{.dp_rank = 1, .medium = 0, .model = "m", .block_tokens = 16};
    if (next_ > 0) blocks.parent_key = 7;
    blocks.keys = keys;
    if (next_ == 0) blocks.hashes = keys;
    visit(blocks);
    return ++next_ < 3000;
  }

 private:
  std::uint64_t next_ = 0;
};

class recording_calls final : public indexer_calls {
 public:
  explicit recording_calls(call_record& record) : record_(record) {}

  result<score_answer> score(const score_question& question) override {
    note("score", question);
    if (record_.failure) return std::unexpected(*record_.failure);
    scores_ = {pod_score{.pod = "pod\"1", .score = 2.8, .blocks = 3, .tokens = 48, .dp_rank = 1, .by_medium = {2, 1}},
               pod_score{.pod = "pod-2", .score = 2, .blocks = 2, .tokens = 32, .dp_rank = 0, .by_medium = {2}}};
    return score_answer{.scores = scores_, .blocks = 4, .block_tokens = 16, .degraded = degraded_};
  }
  result<block_keys_answer> keys(const score_question& question) override {
    note("keys", question);
    return block_keys_answer{keys_, 16};
  }
  result<void> lookup(std::span<const std::uint64_t> keys, const holder_visitor& visit) override {
    const std::array<named_holder, 2> holders{{{"a", 0, 0}, {"b", 3, 1}}};
    if (keys.size() > 1) visit(holders);
    return {};
  }
  std::string_view medium_name(medium_number medium) const override { return medium == 0 ? "gpu" : "cpu"; }
  void tokenize(std::string_view model, std::string_view prompt, token_receiver done) override {
    record_.calls.append("tokenize ").append(model).append(" ").append(prompt).append(";");
    record_.receiver = std::move(done);
  }
  result<void> pods(const pod_visitor& visit) override {
    visit({.pod = "a",
           .dp_rank = 2,
           .model = "m",
           .publisher = "p",
           .state = "live",
           .last_seq = 9,
           .blocks = {5, 6},
           .gaps = 1,
           .replayed = 2,
           .behind_s = 0.5});
    visit({.pod = "b", .dp_rank = 0, .model = "", .publisher = "", .state = "connecting", .last_seq = {}});
    return {};
  }
  result<std::unique_ptr<pod_dump>> dump(std::string_view pod) override {
    record_.calls.append("dump ").append(pod).append(";");
    if (!record_.has_pod) return nullptr;
    return std::make_unique<recording_dump>();
  }
  result<bool> clear(std::string_view pod, std::string_view medium) override {
    record_.calls.append("clear ").append(pod).append(" ").append(medium).append(";");
    return record_.has_pod;
  }
  result<std::uint32_t> speculate(const speculation& sent) override {
    note("speculate", sent.question);
    record_.calls += sent.ttl ? std::to_string(sent.ttl->count()) : "default";
    return 4;
  }
  result<void> add_publisher(const publisher_settings& settings) override {
    record_.calls.append("add ").append(settings.name).append(" ").append(settings.endpoint).append(";");
    if (record_.failure) return std::unexpected(*record_.failure);
    return {};
  }
  result<bool> remove_publisher(std::string_view name) override {
    record_.calls.append("remove ").append(name).append(";");
    return record_.has_pod;
  }
  void write_metrics(std::string& out) override { out += "cenote_indexer_x 1\n"; }
  std::string_view unready_reason() override { return record_.unready; }

 private:
  void note(std::string_view call, const score_question& question) {
    record_.calls.append(call).append(" ").append(question.model).append(" [");
    for (const auto each : question.tokens) record_.calls.append(std::to_string(each)).append(",");
    record_.calls += "] [";
    for (const auto each : question.block_keys) record_.calls.append(std::to_string(each)).append(",");
    record_.calls += "] [";
    for (const auto each : question.pods) record_.calls.append(each).append(",");
    record_.calls.append("] ").append(question.lora_name).append(";");
  }

  call_record& record_;
  std::array<pod_score, 2> scores_;
  std::array<std::string_view, 1> degraded_{"pod-2"};
  std::array<std::uint64_t, 2> keys_{1, 18446744073709551615U};
};

struct service_fixture {
  void ask(std::string_view method, std::string_view target, std::string_view text = {}, std::string_view type = {}) {
    const padded_body body(text);
    const auto question = target.find('?');
    http::http_request request;
    request.method = method;
    request.path = target.substr(0, question);
    if (question != std::string_view::npos) request.query = target.substr(question + 1);
    request.content_type = type;
    request.body = body.bytes();
    record.calls.clear();
    reply.clear();
    service.handle(request, reply);
    if (!reply.event) return;
    // As the server does when the event fires.
    bool has_fired = false;
    const auto event = std::move(reply.event);
    event->arm([&] { has_fired = true; });
    record.receiver(record.tokens);
    BOOST_TEST(has_fired);
    reply.clear();
    request.event = event.get();
    service.handle(request, reply);
  }
  json post(std::string_view path, std::string_view text) {
    ask("POST", path, text);
    return json::parse(reply.body);
  }
  std::string error_text() const { return json::parse(reply.body)["error"].get<std::string>(); }

  call_record record;
  http::http_reply reply;
  indexer_service service{std::make_unique<recording_calls>(record)};
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(indexer_over_http, service_fixture)

BOOST_AUTO_TEST_CASE(scores_are_answered_from_json) {
  const json answer =
      post("/v1/scores", R"({"model_name":"m","token_ids":[1,2],"pod_identifiers":["a"],"lora_name":"l"})");
  BOOST_TEST(reply.status == 200);
  BOOST_TEST(reply.content_type == "application/json");
  BOOST_TEST(record.calls == "score m [1,2,] [] [a,] l;");
  BOOST_TEST(reply.body ==
             R"({"scores":[{"pod":"pod\"1","score":2.8,"blocks":3,"tokens":48,"dp_rank":1,"tiers":{"gpu":2,"cpu":1}},)"
             R"({"pod":"pod-2","score":2,"blocks":2,"tokens":32,"dp_rank":0,"tiers":{"gpu":2}}],)"
             R"("blocks":4,"block_tokens":16,"degraded":["pod-2"]})");
}

BOOST_AUTO_TEST_CASE(scores_are_answered_from_binary_tokens_and_keys) {
  const std::array<std::uint32_t, 3> tokens{1, 2, 4294967295U};
  const std::string_view bytes(reinterpret_cast<const char*>(tokens.data()), sizeof tokens);
  ask("POST", "/v1/scores?model_name=a%2Fb&pod_identifiers=x", bytes, "application/octet-stream");
  BOOST_TEST(reply.status == 200);
  BOOST_TEST(record.calls == "score a/b [1,2,4294967295,] [] [x,] ;");
  ask("POST", "/v1/scores", R"({"block_keys":[5]})");
  BOOST_TEST(reply.status == 200);
  BOOST_TEST(record.calls == "score  [] [5,] [] ;");
}

BOOST_AUTO_TEST_CASE(the_originals_names_are_answered) {
  const json answer = post("/v1/GetPodScores", R"({"prompt":"hello","model_name":"m","pod_identifiers":[]})");
  BOOST_TEST(record.calls == "tokenize m hello;score m [11,12,] [] [] ;");
  BOOST_TEST(reply.body == R"({"scores":[{"pod":"pod\"1","score":2.8},{"pod":"pod-2","score":2}]})");
}

BOOST_AUTO_TEST_CASE(a_text_without_a_tokenizer_is_503) {
  record.tokens = fail(error_code::not_running, "there is no tokenizer; send token_ids");
  post("/v1/scores", R"({"prompt":"hello","model_name":"m"})");
  BOOST_TEST(reply.status == 503);
  BOOST_TEST(error_text() == "there is no tokenizer; send token_ids");
  BOOST_TEST(record.calls == "tokenize m hello;");
}

BOOST_AUTO_TEST_CASE(a_question_that_is_incomplete_or_ambiguous_is_400) {
  for (const std::string_view text :
       {R"({"model_name":"m"})", R"({"token_ids":[1]})", R"({"model_name":"","token_ids":[1]})", "{", "",
        R"({"model_name":"m","token_ids":[1],"prompt":"x"})",
        R"({"model_name":"m","token_ids":[1],"block_keys":[1]})"}) {
    for (const std::string_view path : {"/v1/scores", "/v1/GetPodScores", "/v1/keys", "/v1/speculative"}) {
      ask("POST", path, text);
      BOOST_TEST(reply.status == 400, path << " takes " << text);
      BOOST_TEST(!error_text().empty());
      BOOST_TEST(record.calls.empty());
    }
  }
}

BOOST_AUTO_TEST_CASE(failures_of_the_index_have_their_status) {
  const std::map<error_code, int> statuses{{error_code::invalid_argument, 400}, {error_code::permission_denied, 403},
                                           {error_code::spec_mismatch, 409},    {error_code::limit_exceeded, 429},
                                           {error_code::not_running, 503},      {error_code::internal, 500}};
  for (const auto& [code, status] : statuses) {
    record.failure = error(code, "because");
    post("/v1/scores", R"({"model_name":"m","token_ids":[1]})");
    BOOST_TEST(reply.status == status);
    BOOST_TEST(error_text() == "because");
  }
}

BOOST_AUTO_TEST_CASE(keys_are_given_as_text_and_looked_up) {
  const json keys = post("/v1/keys", R"({"model_name":"m","token_ids":[1]})");
  BOOST_TEST(reply.body == R"({"keys":["1","18446744073709551615"],"block_tokens":16})");
  post("/v1/lookup", json{{"block_keys", keys["keys"]}}.dump());
  BOOST_TEST(reply.body == R"({"blocks":[{"key":"1","holders":[{"pod":"a","dp_rank":0,"tier":"gpu"},)"
                           R"({"pod":"b","dp_rank":3,"tier":"cpu"}]}]})");
  post("/v1/lookup", R"({"block_keys":[]})");
  BOOST_TEST(reply.body == R"({"blocks":[]})");
  post("/v1/lookup", "{}");
  BOOST_TEST(reply.status == 400);
  post("/v1/keys", R"({"block_keys":[1]})");
  BOOST_TEST(reply.status == 400);
}

BOOST_AUTO_TEST_CASE(pods_are_listed) {
  ask("GET", "/v1/pods");
  BOOST_TEST(reply.body ==
             R"({"pods":[{"pod":"a","dp_rank":2,"model":"m","publisher":"p","state":"live","last_seq":9,)"
             R"("blocks":{"gpu":5,"cpu":6},"gaps":1,"replayed":2,"behind_s":0.5},)"
             R"({"pod":"b","dp_rank":0,"model":"","publisher":"","state":"connecting","last_seq":null,"blocks":{},)"
             R"("gaps":0,"replayed":0,"behind_s":0}]})");
}

BOOST_AUTO_TEST_CASE(publishers_come_and_go) {
  post("/v1/publishers", R"({"name":"a","endpoint":"tcp://h:1"})");
  BOOST_TEST(reply.status == 201);
  BOOST_TEST(record.calls == "add a tcp://h:1;");
  record.failure = error(error_code::spec_mismatch, "taken");
  post("/v1/publishers", R"({"name":"a","endpoint":"tcp://h:1"})");
  BOOST_TEST(reply.status == 409);
  ask("DELETE", "/v1/publishers/a%2Fb");
  BOOST_TEST(reply.status == 200);
  BOOST_TEST(record.calls == "remove a/b;");
  ask("DELETE", "/v1/publishers/%4");
  BOOST_TEST(reply.status == 400);
  record.has_pod = false;
  ask("DELETE", "/v1/publishers/a");
  BOOST_TEST(reply.status == 404);
}

BOOST_AUTO_TEST_CASE(a_prompt_that_was_just_sent_counts_for_its_pods) {
  post("/v1/speculative", R"({"model_name":"m","token_ids":[1],"pod_identifiers":["a"],"ttl_s":2})");
  BOOST_TEST(reply.body == R"({"blocks":4})");
  BOOST_TEST(record.calls == "speculate m [1,] [] [a,] ;2000");
  post("/v1/speculative", R"({"model_name":"m","token_ids":[1]})");
  BOOST_TEST(reply.status == 400);
}

BOOST_AUTO_TEST_CASE(a_pod_is_cleared) {
  post("/v1/clear", R"({"pod":"a","medium":"gpu"})");
  BOOST_TEST(reply.status == 200);
  BOOST_TEST(record.calls == "clear a gpu;");
  record.has_pod = false;
  post("/v1/clear", R"({"pod":"a"})");
  BOOST_TEST(reply.status == 404);
}

BOOST_AUTO_TEST_CASE(a_pod_is_dumped_in_parts) {
  ask("GET", "/v1/dump?pod=a%20b");
  BOOST_TEST(record.calls == "dump a b;");
  BOOST_REQUIRE(reply.rest != nullptr);
  std::string text;
  int parts = 1;
  for (; reply.rest->next(text); ++parts) continue;
  BOOST_TEST(parts > 1);
  std::size_t lines = 0;
  for (std::size_t begin = 0; begin < text.size(); ++lines) {
    const std::size_t end = text.find('\n', begin);
    const json line = json::parse(text.substr(begin, end - begin));
    BOOST_TEST(line["pod"] == "a b");
    BOOST_TEST(line["block_keys"][1] == "18446744073709551615");
    BOOST_TEST(line["parent_block_key"].is_null() == (lines == 0));
    BOOST_TEST(line.contains("block_hashes") == (lines == 0));
    begin = end + 1;
  }
  BOOST_TEST(lines == 3000U);
  ask("GET", "/v1/dump");
  BOOST_TEST(reply.status == 400);
  record.has_pod = false;
  ask("GET", "/v1/dump?pod=a");
  BOOST_TEST(reply.status == 404);
}

BOOST_AUTO_TEST_CASE(probes_and_metrics_are_answered) {
  ask("GET", "/healthz");
  BOOST_TEST(reply.status == 200);
  ask("GET", "/readyz");
  BOOST_TEST(reply.status == 200);
  record.unready = "2 of 3 publishers are replaying";
  ask("GET", "/readyz");
  BOOST_TEST(reply.status == 503);
  BOOST_TEST(error_text() == record.unready);
  ask("GET", "/metrics");
  BOOST_TEST(reply.body == "cenote_indexer_x 1\n");
  BOOST_TEST(reply.content_type.starts_with("text/plain"));
}

BOOST_AUTO_TEST_CASE(an_unknown_path_is_404_and_another_method_405) {
  for (const std::string_view path :
       {"/", "/v1", "/v1/scores/", "/v1/publishers/", "/v1/publishers/a/b", "/v2/scores"}) {
    ask("GET", path);
    BOOST_TEST((reply.status == 404 || path == "/v1/publishers/"), path);
  }
  ask("GET", "/v1/scores");
  BOOST_TEST(reply.status == 405);
  BOOST_TEST(reply.allow == "POST");
  ask("POST", "/v1/pods");
  BOOST_TEST(reply.allow == "GET, HEAD");
  ask("GET", "/v1/publishers");
  BOOST_TEST(reply.allow == "POST");
  ask("POST", "/v1/publishers/a");
  BOOST_TEST(reply.allow == "DELETE");
  BOOST_TEST(reply.status == 405);
}

BOOST_AUTO_TEST_SUITE_END()
