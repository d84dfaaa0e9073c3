// Spans of sampled requests on their way to the node.
#pragma once

#include <cstdint>
#include <mutex>

#include "transport/local/trace_spans.hpp"

namespace cenote::client {

/// Sends spans over the session's socket, at once where it takes them; what it does not take goes with the next ones.
/// No call waits for the node. Thread-safe.
class span_outbox {
 public:
  /// `socket`: its number stays the same over re-attaches, and frames of other threads may be sent beside these.
  explicit span_outbox(int socket) noexcept : socket_(socket) {}

  /// A span that the node would refuse, with all others of its frame, counts as dropped.
  void add(const local::trace_span& span);
  /// Sends what waits, as far as the socket takes it.
  void flush();
  /// Those that wait, and found no room: the node does not want them any more.
  void forget();

 private:
  void send();

  const int socket_;
  std::mutex mutex_;  ///< of all below
  local::span_batch waiting_{};
};

}  // namespace cenote::client
