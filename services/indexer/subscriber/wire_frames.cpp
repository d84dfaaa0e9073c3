// Sizes are checked before anything is read.
#include "services/indexer/subscriber/wire_frames.hpp"

#include "services/indexer/feed/batch_payload.hpp"
#include "services/indexer/subscriber/publisher_options.hpp"

namespace cenote::indexer {

namespace {

std::optional<std::uint64_t> number_of(const zmq::message_part& part) noexcept {
  if (part.size() != sizeof(std::uint64_t)) return std::nullopt;
  std::uint64_t number = 0;
  for (const std::byte each : part.bytes()) number = number << 8U | std::to_integer<std::uint64_t>(each);
  return number;
}

/// A topic, if there is one, a number and a payload from the part `start` on.
std::optional<wire_batch> batch_at(const zmq::multipart_message& message, std::size_t start, bool has_topic) {
  wire_batch batch;
  batch.has_topic = has_topic;
  if (has_topic) {
    batch.topic = message.part(start).text();
    if (batch.topic.size() > publisher_limits::topic_bytes) return std::nullopt;
  }
  const std::size_t place = has_topic ? start + 1 : start;
  const auto seq = number_of(message.part(place));
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
  const auto number = wire_number(question.start);
  return {number.data(), number.size()};
}

std::array<char, 8> wire_number(std::uint64_t number) noexcept {
  std::array<char, 8> bytes{};
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(number >> (8U * (7U - i)) & 0xffU);
  return bytes;
}

}  // namespace cenote::indexer
