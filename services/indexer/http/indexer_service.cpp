#include "services/indexer/http/indexer_service.hpp"

#include <array>
#include <utility>
#include <vector>

#include "core/json_writer.hpp"
#include "transport/http/query_text.hpp"

namespace cenote::indexer {

namespace {

constexpr std::string_view binary_type = "application/octet-stream";
constexpr std::string_view publishers_path = "/v1/publishers";
constexpr std::size_t dump_part = std::size_t{256} << 10U;  ///< bytes of a part of a dump, about

int status_of(error_code code) noexcept {
  switch (code) {
    case error_code::invalid_argument:
    case error_code::invalid_config:
    case error_code::malformed: return 400;
    case error_code::permission_denied: return 403;
    case error_code::spec_mismatch: return 409;
    case error_code::limit_exceeded: return 429;
    case error_code::not_running:
    case error_code::node_restarting:
    case error_code::deadline_exceeded:
    case error_code::unsupported:
    case error_code::closed:
    case error_code::no_space: return 503;
    default: return 500;
  }
}

void refuse_with(http::http_reply& reply, const error& failure) {
  reply.fail(status_of(failure.code()), failure.message());
}

/// A text on its way through the tokenizer.
struct tokenization final : http::reply_event {
  result<std::vector<std::uint32_t>> tokens;  ///< written before the event fires
};

/// The blocks of each medium that has some: `"tiers":{"gpu":3}`.
template <class Counts>
void write_tiers(json_writer& json, std::string_view name, const Counts& by_medium, const indexer_calls& calls) {
  json.name(name);
  json.begin_object();
  for (std::size_t medium = 0; medium < by_medium.size(); ++medium) {
    if (by_medium[medium] == 0) continue;
    json.name_text(calls.medium_name(static_cast<medium_number>(medium)));
    json.number(by_medium[medium]);
  }
  json.end_object();
}

void write_keys(json_writer& json, std::string_view name, std::span<const std::uint64_t> keys) {
  json.name(name);
  json.begin_list();
  for (const std::uint64_t each : keys) json.decimal_text(each);
  json.end_list();
}

/// A pod's blocks as lines of JSON, an event each.
class dump_lines final : public http::reply_source {
 public:
  dump_lines(std::unique_ptr<pod_dump> dump, const indexer_calls& calls, std::string_view pod)
      : dump_(std::move(dump)), calls_(calls), pod_(pod) {}

  bool next(std::string& out) override {
    const std::size_t begin = out.size();
    while (true) {
      const std::size_t size = out.size();
      const bool has_more = dump_->next([&](const dumped_blocks& blocks) { write(blocks, out); });
      if (!has_more || out.size() == size || out.size() - begin >= dump_part) return has_more;
    }
  }

 private:
  void write(const dumped_blocks& blocks, std::string& out) const {
    json_writer json(out);
    json.begin_object();
    json.name("type");
    json.text("BlockStored");
    json.name("pod");
    json.text(pod_);
    json.name("dp_rank");
    json.number(blocks.dp_rank);
    json.name("model");
    json.text(blocks.model);
    json.name("medium");
    json.text(calls_.medium_name(blocks.medium));
    json.name("block_size");
    json.number(blocks.block_tokens);
    json.name("parent_block_key");
    if (blocks.parent_key) {
      json.decimal_text(*blocks.parent_key);
    } else {
      json.null();
    }
    write_keys(json, "block_keys", blocks.keys);
    if (!blocks.hashes.empty()) write_keys(json, "block_hashes", blocks.hashes);
    json.end_object();
    out.push_back('\n');
  }

  std::unique_ptr<pod_dump> dump_;
  const indexer_calls& calls_;
  std::string pod_;
};

void write_pod(json_writer& json, const pod_status& status, const indexer_calls& calls) {
  json.begin_object();
  json.name("pod");
  json.text(status.pod);
  json.name("dp_rank");
  json.number(status.dp_rank);
  json.name("model");
  json.text(status.model);
  json.name("publisher");
  json.text(status.publisher);
  json.name("state");
  json.text(status.state);
  json.name("last_seq");
  if (status.last_seq) {
    json.number(*status.last_seq);
  } else {
    json.null();
  }
  write_tiers(json, "blocks", status.blocks, calls);
  json.name("gaps");
  json.number(status.gaps);
  json.name("replayed");
  json.number(status.replayed);
  json.name("behind_s");
  json.real(status.behind_s);
  json.end_object();
}

void write_pod_and_score(json_writer& json, const pod_score& score) {
  json.name("pod");
  json.text(score.pod);
  json.name("score");
  json.real(score.score);
}

}  // namespace

struct indexer_service::route {
  std::string_view path;
  bool is_post;
  void (indexer_service::*answer)(const http_request&, http_reply&);
};

std::span<const indexer_service::route> indexer_service::routes() noexcept {
  static constexpr std::array<route, 12> table{{
      {"/v1/scores", true, &indexer_service::answer_scores},
      {"/v1/GetPodScores", true, &indexer_service::answer_pod_scores},
      {"/v1/keys", true, &indexer_service::answer_keys},
      {"/v1/lookup", true, &indexer_service::answer_lookup},
      {"/v1/pods", false, &indexer_service::answer_pods},
      {publishers_path, true, &indexer_service::answer_add_publisher},
      {"/v1/speculative", true, &indexer_service::answer_speculative},
      {"/v1/clear", true, &indexer_service::answer_clear},
      {"/v1/dump", false, &indexer_service::answer_dump},
      {"/metrics", false, &indexer_service::answer_metrics},
      {"/healthz", false, &indexer_service::answer_health},
      {"/readyz", false, &indexer_service::answer_ready},
  }};
  return table;
}

indexer_service::indexer_service(std::unique_ptr<indexer_calls> calls) : calls_(std::move(calls)) {}

indexer_service::~indexer_service() = default;

void indexer_service::handle(const http_request& request, http_reply& reply) {
  for (const route& each : routes()) {
    if (each.path != request.path) continue;
    const std::string_view method = each.is_post ? "POST" : "GET";
    if (request.method == method) return (this->*each.answer)(request, reply);
    return reply.refuse_method(each.is_post ? "POST" : "GET, HEAD");
  }
  const auto slash = request.path.rfind('/');
  if (request.path.substr(0, slash) == publishers_path && slash == publishers_path.size()) {
    if (request.method != "DELETE") return reply.refuse_method("DELETE");
    return answer_remove_publisher(request.path.substr(slash + 1), reply);
  }
  scratch_.assign("there is no such call; there are");
  for (const route& each : routes()) scratch_.append(each.is_post ? " POST " : " GET ").append(each.path);
  reply.fail(404, scratch_);
}

result<question_body> indexer_service::read_question(const http_request& request) {
  if (request.has_type(binary_type)) return reader_.read_binary_question(request.body, request.query);
  return reader_.read_question(request.body);
}

/// A question with tokens, or with the keys of blocks; false: `reply` is why not, or waits for the tokens of a text.
bool indexer_service::read_tokens(const http_request& request, http_reply& reply, question_body& body) {
  auto read = read_question(request);
  if (!read) {
    refuse_with(reply, read.error());
    return false;
  }
  body = *read;
  const int prompts = (body.has_tokens ? 1 : 0) + (body.prompt ? 1 : 0) + (body.has_block_keys ? 1 : 0);
  if (prompts != 1) {
    reply.fail(400, "a question has exactly one of token_ids, prompt and block_keys");
    return false;
  }
  if (body.question.model.empty() && !body.has_block_keys) {
    reply.fail(400,
               "model_name is missing; right would be the name under which the engines publish, \"Qwen/Qwen3-32B\"");
    return false;
  }
  if (!body.prompt) return true;
  if (request.event == nullptr) {
    const auto pending = std::make_shared<tokenization>();
    reply.event = pending;
    calls_->tokenize(body.question.model, *body.prompt, [pending](result<std::vector<std::uint32_t>> tokens) {
      pending->tokens = std::move(tokens);
      pending->fire();
    });
    return false;
  }
  const auto& tokens = static_cast<const tokenization*>(request.event)->tokens;
  if (!tokens) {
    refuse_with(reply, tokens.error());
    return false;
  }
  body.question.tokens = *tokens;
  return true;
}

bool indexer_service::ask_scores(const http_request& request, http_reply& reply, score_answer& answer) {
  question_body body;
  if (!read_tokens(request, reply, body)) return false;
  const auto scored = calls_->score(body.question);
  if (!scored) {
    refuse_with(reply, scored.error());
    return false;
  }
  answer = *scored;
  return true;
}

void indexer_service::answer_scores(const http_request& request, http_reply& reply) {
  score_answer answer;
  if (!ask_scores(request, reply, answer)) return;
  json_writer json(reply.body);
  json.begin_object();
  json.name("scores");
  json.begin_list();
  for (const pod_score& each : answer.scores) {
    json.begin_object();
    write_pod_and_score(json, each);
    json.name("blocks");
    json.number(each.blocks);
    json.name("tokens");
    json.number(each.tokens);
    json.name("dp_rank");
    json.number(each.dp_rank);
    write_tiers(json, "tiers", each.by_medium, *calls_);
    json.end_object();
  }
  json.end_list();
  json.name("blocks");
  json.number(answer.blocks);
  json.name("block_tokens");
  json.number(answer.block_tokens);
  json.name("degraded");
  json.begin_list();
  for (const std::string_view each : answer.degraded) json.text(each);
  json.end_list();
  json.end_object();
}

void indexer_service::answer_pod_scores(const http_request& request, http_reply& reply) {
  score_answer answer;
  if (!ask_scores(request, reply, answer)) return;
  json_writer json(reply.body);
  json.begin_object();
  json.name("scores");
  json.begin_list();
  for (const pod_score& each : answer.scores) {
    json.begin_object();
    write_pod_and_score(json, each);
    json.end_object();
  }
  json.end_list();
  json.end_object();
}

void indexer_service::answer_keys(const http_request& request, http_reply& reply) {
  question_body body;
  if (!read_tokens(request, reply, body)) return;
  if (body.has_block_keys) return reply.fail(400, "block_keys are keys already; right would be token_ids or prompt");
  const auto answer = calls_->keys(body.question);
  if (!answer) return refuse_with(reply, answer.error());
  json_writer json(reply.body);
  json.begin_object();
  write_keys(json, "keys", answer->keys);
  json.name("block_tokens");
  json.number(answer->block_tokens);
  json.end_object();
}

void indexer_service::answer_lookup(const http_request& request, http_reply& reply) {
  const auto body = reader_.read_question(request.body);
  if (!body) return refuse_with(reply, body.error());
  if (!body->has_block_keys)
    return reply.fail(400, "block_keys is missing; right would be keys as /v1/keys gives them");
  const auto keys = body->question.block_keys;
  std::size_t index = 0;
  json_writer json(reply.body);
  json.begin_object();
  json.name("blocks");
  json.begin_list();
  const auto visited = calls_->lookup(keys, [&](std::span<const named_holder> holders) {
    json.begin_object();
    json.name("key");
    json.decimal_text(keys[index++]);
    json.name("holders");
    json.begin_list();
    for (const named_holder& each : holders) {
      json.begin_object();
      json.name("pod");
      json.text(each.pod);
      json.name("dp_rank");
      json.number(each.dp_rank);
      json.name("tier");
      json.text(calls_->medium_name(each.medium));
      json.end_object();
    }
    json.end_list();
    json.end_object();
  });
  if (!visited) return refuse_with(reply, visited.error());
  json.end_list();
  json.end_object();
}

void indexer_service::answer_pods(const http_request&, http_reply& reply) {
  json_writer json(reply.body);
  json.begin_object();
  json.name("pods");
  json.begin_list();
  const auto visited = calls_->pods([&](const pod_status& status) { write_pod(json, status, *calls_); });
  if (!visited) return refuse_with(reply, visited.error());
  json.end_list();
  json.end_object();
}

void indexer_service::answer_add_publisher(const http_request& request, http_reply& reply) {
  const auto settings = reader_.read_publisher(request.body);
  if (!settings) return refuse_with(reply, settings.error());
  if (const auto added = calls_->add_publisher(*settings); !added) return refuse_with(reply, added.error());
  reply.status = 201;
  json_writer json(reply.body);
  json.begin_object();
  json.name("name");
  json.text(settings->name);
  json.end_object();
}

void indexer_service::answer_remove_publisher(std::string_view name, http_reply& reply) {
  scratch_.clear();
  if (!http::append_decoded(scratch_, name)) {
    return reply.fail(400, "the name has a '%' without two hexadecimal digits");
  }
  const auto removed = calls_->remove_publisher(scratch_);
  if (!removed) return refuse_with(reply, removed.error());
  if (!*removed) return reply.fail(404, "there is no publisher '" + scratch_ + "'; GET /v1/pods names them");
  reply.body = "{}";
}

void indexer_service::answer_speculative(const http_request& request, http_reply& reply) {
  question_body body;
  if (!read_tokens(request, reply, body)) return;
  if (body.question.pods.empty()) {
    return reply.fail(400,
                      "pod_identifiers is missing; right would be a list with the pod that the prompt was sent to");
  }
  const auto held = calls_->speculate({body.question, body.ttl});
  if (!held) return refuse_with(reply, held.error());
  json_writer json(reply.body);
  json.begin_object();
  json.name("blocks");
  json.number(*held);
  json.end_object();
}

void indexer_service::answer_clear(const http_request& request, http_reply& reply) {
  const auto body = reader_.read_clear(request.body);
  if (!body) return refuse_with(reply, body.error());
  const auto cleared = calls_->clear(body->pod, body->medium);
  if (!cleared) return refuse_with(reply, cleared.error());
  if (!*cleared) return reply.fail(404, "there is no pod '" + std::string(body->pod) + "'; GET /v1/pods names them");
  reply.body = "{}";
}

void indexer_service::answer_dump(const http_request& request, http_reply& reply) {
  std::string_view query = request.query;
  scratch_.clear();
  while (const auto field = http::cut_query_field(query)) {
    if (field->name != "pod") continue;
    if (!scratch_.empty()) return reply.fail(400, "pod is there twice");
    if (!http::append_decoded_query(scratch_, field->value)) {
      return reply.fail(400, "pod in the query has a '%' without two hexadecimal digits");
    }
  }
  if (scratch_.empty()) return reply.fail(400, "pod is missing; right would be /v1/dump?pod=NAME");
  auto dump = calls_->dump(scratch_);
  if (!dump) return refuse_with(reply, dump.error());
  if (!*dump) return reply.fail(404, "there is no pod '" + scratch_ + "'; GET /v1/pods names them");
  reply.content_type = "application/x-ndjson";
  reply.rest = std::make_unique<dump_lines>(std::move(*dump), *calls_, scratch_);
}

void indexer_service::answer_metrics(const http_request&, http_reply& reply) {
  reply.content_type = "text/plain; version=0.0.4";
  calls_->write_metrics(reply.body);
}

void indexer_service::answer_health(const http_request&, http_reply& reply) {
  reply.content_type = "text/plain";
  reply.body = "ok\n";
}

void indexer_service::answer_ready(const http_request&, http_reply& reply) {
  const std::string_view reason = calls_->unready_reason();
  if (!reason.empty()) return reply.fail(503, reason);
  reply.content_type = "text/plain";
  reply.body = "ready\n";
}

}  // namespace cenote::indexer
