#include "client/fork_guard.hpp"

#include <pthread.h>

#include <atomic>

namespace cenote::client {

namespace {

// A handler of the process can only speak to the rest through a global; it is the one of the library.
std::atomic<std::uint32_t>& generation() noexcept {
  static std::atomic<std::uint32_t> count{0};
  static const int registered =
      ::pthread_atfork(nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(registered);
  return count;
}

}  // namespace

std::uint32_t fork_generation() noexcept {
  return generation().load(std::memory_order_relaxed);
}

}  // namespace cenote::client
