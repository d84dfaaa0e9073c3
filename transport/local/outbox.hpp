// What a connection is still to be told, and the descriptors that its peer has not taken yet.
#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "transport/local/socket.hpp"

namespace cenote::local {

/// Frames to one peer, in order, without ever waiting for it. A descriptor in a frame that the peer has not read is "in
/// flight": the kernel counts those of all sockets of a user, and refuses more than RLIMIT_NOFILE. Not thread-safe.
class outbox {
 public:
  using clock = std::chrono::steady_clock;

  /// The socket stays the caller's and outlives this.
  explicit outbox(int socket) noexcept : socket_(socket) {}

  /// Sends the frame, or keeps it (with copies of the descriptors) until flush() can.
  /// Errors: closed, limit_exceeded (payload, descriptors), system.
  result<void> send(const frame_header& header, std::vector<std::byte> payload, std::span<const int> fds = {});

  /// A text of any length up to max_text, as local::send_text does.
  result<void> send_text(frame_header header, std::string_view text);

  /// Drops the frames that wait. Descriptors that were sent and not read stay counted.
  void abandon() noexcept {
    frames_.clear();
    lacks_descriptors_ = false;
  }

  /// Sends the frames that wait, as far as the socket takes them. Errors as send().
  result<void> flush();

  [[nodiscard]] bool empty() const noexcept { return frames_.empty(); }
  /// Since when the first frame waits; meaningless when empty().
  [[nodiscard]] clock::time_point stuck_since() const noexcept { return stuck_since_; }

  /// The first frame waits because too many descriptors of this process's user are in flight, of all sockets together:
  /// the socket may be writable, and flush() is to be tried again after a while.
  [[nodiscard]] bool lacks_descriptors() const noexcept { return lacks_descriptors_ && !frames_.empty(); }

  /// Descriptors that were sent, and that the peer may not have taken; those that wait here count, too. A system call
  /// while there are any.
  [[nodiscard]] std::size_t descriptors() noexcept;

 private:
  struct waiting {
    frame_header header;
    std::vector<std::byte> payload;
    std::vector<unique_fd> fds;
  };

  /// False: the socket has no room now.
  result<bool> try_send(const frame_header& header, std::span<const std::byte> payload, std::span<const int> fds);

  int socket_;
  std::deque<waiting> frames_;
  std::size_t in_flight_ = 0;
  bool lacks_descriptors_ = false;
  clock::time_point stuck_since_;
};

}  // namespace cenote::local
