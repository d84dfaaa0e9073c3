// The indexer's calls over HTTP.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "services/indexer/http/body_reader.hpp"
#include "services/indexer/http/indexer_calls.hpp"
#include "transport/http/request_handler.hpp"

namespace cenote::indexer {

/// Answers requests as `docs/indexer.md` lists them; one object for each thread of the server. In the steady state a
/// question for scores allocates nothing.
class indexer_service final : public http::request_handler {
 public:
  explicit indexer_service(std::unique_ptr<indexer_calls> calls);
  ~indexer_service() override;

  void handle(const http::http_request& request, http::http_reply& reply) override;

 private:
  using http_request = http::http_request;
  using http_reply = http::http_reply;
  struct route;
  static std::span<const route> routes() noexcept;

  void answer_scores(const http_request& request, http_reply& reply);
  void answer_pod_scores(const http_request& request, http_reply& reply);
  void answer_keys(const http_request& request, http_reply& reply);
  void answer_lookup(const http_request& request, http_reply& reply);
  void answer_pods(const http_request& request, http_reply& reply);
  void answer_add_publisher(const http_request& request, http_reply& reply);
  void answer_remove_publisher(std::string_view name, http_reply& reply);
  void answer_speculative(const http_request& request, http_reply& reply);
  void answer_clear(const http_request& request, http_reply& reply);
  void answer_dump(const http_request& request, http_reply& reply);
  void answer_metrics(const http_request& request, http_reply& reply);
  void answer_health(const http_request& request, http_reply& reply);
  void answer_ready(const http_request& request, http_reply& reply);

  [[nodiscard]] result<question_body> read_question(const http_request& request);
  [[nodiscard]] bool read_tokens(const http_request& request, http_reply& reply, question_body& body);
  [[nodiscard]] bool ask_scores(const http_request& request, http_reply& reply, score_answer& answer);

  std::unique_ptr<indexer_calls> calls_;
  body_reader reader_;
  std::string scratch_;
};

}  // namespace cenote::indexer
