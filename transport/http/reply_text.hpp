// The bytes of an answer: its head, its body, and the chunks of what follows.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "transport/http/request_handler.hpp"

namespace cenote::http {

/// The connection and request that an answer is for.
struct reply_framing {
  bool is_last = false;         ///< the connection ends behind it
  bool is_old_version = false;  ///< HTTP/1.0, which has no chunks
  bool is_head = false;         ///< of a HEAD request: without the body
};

/// The answer of a connection that is under way. It keeps its memory for the next one. Not thread-safe.
class reply_text {
 public:
  /// Takes the body and the rest of `reply`.
  void set(http_reply& reply, const reply_framing& framing);
  [[nodiscard]] std::string_view head() const noexcept { return head_; }
  /// The bytes to send behind the head or behind the part before.
  [[nodiscard]] std::string_view body() const noexcept { return body_; }
  /// Whether there is more than body().
  [[nodiscard]] bool has_rest() const noexcept { return rest_ != nullptr; }
  /// Makes the next part, in body(); false: it is not there yet. It throws what the source throws.
  [[nodiscard]] bool make_next_part();
  /// Frees the memory of a large answer.
  void trim();

 private:
  void write_head(const http_reply& reply, const reply_framing& framing);
  void append_chunk();

  std::string head_;
  std::string body_;
  std::string part_;
  std::unique_ptr<reply_source> rest_;
  bool is_chunked_ = false;
};

}  // namespace cenote::http
