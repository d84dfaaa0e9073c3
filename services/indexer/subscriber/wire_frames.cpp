// Sizes are checked before anything is read.
#include "services/indexer/subscriber/wire_frames.hpp"

#include "services/indexer/feed/batch_payload.hpp"
#include "services/indexer/subscriber/publisher_options.hpp"
#include "transport/zmq/number_frame.hpp"

namespace cenote::indexer {

namespace {

/// A topic, if there is one, a number and a payload from the part `start` on.
std::optional<wire_batch> batch_at(const zmq::multipart_message& message, std::size_t start, bool has_topic) {
  wire_batch batch;
  batch.has_topic = has_topic;
  if (has_topic) {
    batch.topic = message.part(start).text();
    if (batch.topic.size() > publisher_limits::topic_bytes) return std::nullopt;
  }
  const std::size_t place = has_topic ? start + 1 : start;
  const auto seq = zmq::number_in(message.part(place).text());
  if (!seq) return std::nullopt;
  batch.seq = *seq;
  batch.payload = place + 1;
  return batch;
}

}  // namespace

std::optional<wire_batch> live_batch_of(const zmq::multipart_message& message) {
  if (message.is_cut() || message.size() != 3) return std::nullopt;
  return batch_at(message, 0, true);
}

std::optional<wire_batch> answer_of(const zmq::multipart_message& message) {
  const bool has_topic = message.size() == 4;
  if (message.is_cut() || (!has_topic && message.size() != 3) || message.part(0).size() != 0) return std::nullopt;
  return batch_at(message, 1, has_topic);
}

bool is_end(const wire_batch& answer, std::size_t payload_bytes, replay_kind kind) noexcept {
  return answer.seq == end_number || (kind == replay_kind::snapshot && payload_bytes == 0);
}

std::string request_of(const feed_ask& question) {
  if (question.kind == replay_kind::snapshot) return "snapshot";
  const auto number = zmq::number_frame(question.start);
  return {number.data(), number.size()};
}

}  // namespace cenote::indexer
