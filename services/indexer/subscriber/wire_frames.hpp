// Parts of a message as a batch or an answer, in all forms that engines send.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "services/indexer/feed/feed_commands.hpp"
#include "transport/zmq/message.hpp"

namespace cenote::indexer {

/// `[topic, seq, payload]`, or an answer's `["", topic, seq, payload]`; before 2026 that had no topic.
struct wire_batch {
  std::string_view topic{};  ///< empty if there is none; a view of the message
  bool has_topic = false;
  std::uint64_t seq = 0;
  std::size_t payload = 0;  ///< the part's place in the message
};

/// Nothing: it is no batch (parts, a topic above 512 bytes, a number that has no 8 bytes).
[[nodiscard]] std::optional<wire_batch> live_batch_of(const zmq::multipart_message& message);
[[nodiscard]] std::optional<wire_batch> answer_of(const zmq::multipart_message& message);

/// Whether an answer is its request's end: of a replay the number 2^64-1; of a snapshot an empty payload.
[[nodiscard]] bool is_end(const wire_batch& answer, std::size_t payload_bytes, replay_kind kind) noexcept;

/// The second part of a request; the first one is empty, and a third one may name a topic. A start as 8 bytes, big
/// endian, or "snapshot".
[[nodiscard]] std::string request_of(const feed_ask& question);

}  // namespace cenote::indexer
