#include "transport/local/outbox.hpp"

#include <fcntl.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <string>
#include <utility>

#include "transport/local/registry.hpp"

namespace cenote::local {

result<bool> outbox::try_send(const frame_header& header, std::span<const std::byte> payload,
                              std::span<const int> fds) {
  auto sent = try_send_frame(socket_, header, payload, fds);
  lacks_descriptors_ = false;
  // Too many descriptors wait in sockets of this user: they will be read, or their sockets closed.
  if (!sent && sent.error().code() == error_code::limit_exceeded && !fds.empty() && fds.size() <= max_frame_fds &&
      payload.size() <= max_payload) {
    lacks_descriptors_ = true;
    return false;
  }
  if (sent && *sent) in_flight_ += fds.size();
  return sent;
}

result<void> outbox::send(const frame_header& header, std::vector<std::byte> payload, std::span<const int> fds) {
  if (frames_.empty()) {
    const auto sent = try_send(header, payload, fds);
    if (!sent) return std::unexpected(sent.error());
    if (*sent) return {};
    stuck_since_ = clock::now();
  }
  waiting kept{header, std::move(payload), {}};
  for (const int fd : fds) {
    unique_fd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (!copy) return fail_errno("fcntl: F_DUPFD_CLOEXEC");
    kept.fds.push_back(std::move(copy));
  }
  frames_.push_back(std::move(kept));
  return {};
}

result<void> outbox::send_text(frame_header header, std::string_view text) {
  if (text.size() > max_text) return fail(error_code::limit_exceeded, "a message is longer than 16 MiB");
  for (;;) {
    const auto piece = std::as_bytes(std::span(text.substr(0, max_payload)));
    text.remove_prefix(piece.size());
    header.flags = static_cast<std::uint16_t>(text.empty() ? header.flags & ~flag_more : header.flags | flag_more);
    if (auto sent = send(header, {piece.begin(), piece.end()}); !sent) return sent;
    if (text.empty()) return {};
  }
}

result<void> outbox::flush() {
  while (!frames_.empty()) {
    const waiting& first = frames_.front();
    const auto sent = try_send(first.header, first.payload, numbers_of(first.fds));
    if (!sent) return std::unexpected(sent.error());
    if (!*sent) return {};
    frames_.pop_front();
    stuck_since_ = clock::now();
  }
  return {};
}

std::size_t outbox::descriptors() noexcept {
  std::size_t count = 0;
  for (const waiting& each : frames_) count += each.fds.size();
  if (in_flight_ == 0) return count;
  // Bytes that this socket sent and nobody received: none once the peer has read all, or is gone.
  int unread = 0;
  if (::ioctl(socket_, SIOCOUTQ, &unread) != 0 || unread == 0) in_flight_ = 0;
  return count + in_flight_;
}

}  // namespace cenote::local
