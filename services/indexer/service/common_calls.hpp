// Calls that do not ask the index, whatever it is: texts, publishers, whether the service is ready.
#pragma once

#include <chrono>
#include <memory>
#include <string_view>

#include "services/indexer/discovery/kubernetes_watch.hpp"
#include "services/indexer/http/indexer_calls.hpp"
#include "services/indexer/service/question_counts.hpp"
#include "services/indexer/service/service_figures.hpp"
#include "services/indexer/subscriber/subscriber.hpp"
#include "services/indexer/text/text_tokenizer.hpp"
#include "transport/http/request_server.hpp"

namespace cenote::indexer {

/// The parts that all threads of the service share, beside the index; all outlive the calls.
struct service_parts {
  subscriber& events;
  question_totals& questions;
  feed_time start{};                             ///< of the service
  const http::request_server* server = nullptr;  ///< whose figures are in the metrics, if it is there
  text_tokenizer* texts = nullptr;               ///< null: there is none
  const kubernetes_watch* pods = nullptr;        ///< null: none are watched
  metric_names names = metric_names::own;
};

/// For one thread of a transport.
class common_calls : public indexer_calls {
 public:
  void tokenize(std::string_view model, std::string_view prompt, token_receiver done) override;
  result<void> add_publisher(const publisher_settings& settings) override;
  result<bool> remove_publisher(std::string_view name) override;
  std::string_view unready_reason() override;

 protected:
  common_calls(const service_parts& parts, question_counts& counts) : parts_(parts), counts_(counts) {}

  /// Counts for one more thread. Errors: limit_exceeded.
  [[nodiscard]] static result<question_counts*> open_counts(const service_parts& parts);
  /// The answer of `scores`, an object that has score(), counted with its time.
  template <class Scores>
  [[nodiscard]] score_answer counted_score(Scores& scores, const score_question& question) {
    const auto begin = std::chrono::steady_clock::now();
    const score_answer answer = scores.score(question);
    count(answer, std::chrono::steady_clock::now() - begin);
    return answer;
  }

  [[nodiscard]] const service_parts& parts() const noexcept { return parts_; }
  /// A publisher's row, without the blocks of its pod.
  [[nodiscard]] static pod_status status_of(const publisher_row& row);
  /// Metrics beside those of the index and its pods.
  void add_metrics(metrics_page& page) const;

 private:
  void count(const score_answer& answer, std::chrono::nanoseconds time) noexcept;

  service_parts parts_;
  question_counts& counts_;
};

}  // namespace cenote::indexer
