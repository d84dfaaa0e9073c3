// Waits for many sockets and descriptors at a cost of those that are ready.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"

namespace cenote::zmq {

/// A descriptor of a poller's; leaves it when this ends, which has to be before the descriptor is closed.
class descriptor_watch {
 public:
  descriptor_watch(int epoll, int descriptor) noexcept : epoll_(epoll), descriptor_(descriptor) {}
  descriptor_watch(descriptor_watch&& other) noexcept
      : epoll_(other.epoll_), descriptor_(std::exchange(other.descriptor_, -1)) {}
  descriptor_watch& operator=(descriptor_watch&&) = delete;
  descriptor_watch(const descriptor_watch&) = delete;
  descriptor_watch& operator=(const descriptor_watch&) = delete;
  ~descriptor_watch();

 private:
  int epoll_, descriptor_;
};

/// Descriptors by token, message sockets' and others. Level-triggered: a socket is ready again and again until it was
/// received from until there was nothing. Not thread-safe.
class descriptor_poller {
 public:
  using token = std::uint64_t;

  /// Errors: system.
  [[nodiscard]] static result<descriptor_poller> make();

  /// The poller outlives the watch. Several descriptors may have one token. Errors: system (it is there already).
  [[nodiscard]] result<descriptor_watch> add(int descriptor, token name);
  /// The tokens of up to `limit_count` descriptors that are readable, in no order; waits for `limit` if there are none.
  /// Until the next call.
  [[nodiscard]] const std::vector<token>& wait(std::chrono::milliseconds limit, std::size_t limit_count = 256);

 private:
  explicit descriptor_poller(unique_fd epoll) noexcept : epoll_(std::move(epoll)) {}

  unique_fd epoll_;
  std::vector<epoll_event> events_;
  std::vector<token> ready_;
};

}  // namespace cenote::zmq
