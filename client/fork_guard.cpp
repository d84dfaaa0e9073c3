#include "client/fork_guard.hpp"

#include <pthread.h>

namespace cenote::client {

// A handler of the process can only speak to the rest through a global; it is the one of the library.
constinit std::atomic<std::uint32_t> fork_guard::forks{0};

std::uint32_t fork_generation() noexcept {
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { fork_guard::forks.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  return fork_guard::forks.load(std::memory_order_relaxed);
}

}  // namespace cenote::client
