#include "client/span_outbox.hpp"

#include <limits>

#include "transport/local/socket.hpp"

namespace cenote::client {

namespace {

/// Of no request that waits for an answer: a refusal of spans is nobody's.
constexpr auto unawaited = std::numeric_limits<std::uint32_t>::max();

}  // namespace

void span_outbox::add(const local::trace_span& span) {
  const std::lock_guard lock(mutex_);
  if (waiting_.spans.size() < local::span_batch::capacity && local::is_sane(span)) {
    waiting_.spans.push_back(span);
  } else {
    ++waiting_.dropped;
  }
  send();
}

void span_outbox::flush() {
  const std::lock_guard lock(mutex_);
  if (!waiting_.spans.empty()) send();
}

void span_outbox::forget() {
  const std::lock_guard lock(mutex_);
  waiting_ = {};
}

void span_outbox::send() {
  local::frame_header header;
  header.type = local::frame_type::spans;
  header.request = unawaited;
  const auto sent = local::try_send_frame(socket_, header, local::encode(waiting_), {});
  if (sent && *sent) waiting_ = {};
}

}  // namespace cenote::client
