#include "core/parallel.hpp"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>
#include <vector>

namespace cenote {

namespace {

constexpr std::size_t most_threads = 8;

}  // namespace

void run_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next{0};
  const auto take_turns = [&]() noexcept {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  const std::size_t processors = std::max(std::thread::hardware_concurrency(), 1U);
  std::vector<std::jthread> helpers;
  for (std::size_t i = 1; i < std::min({processors, most_threads, count}); ++i) {
    try {
      helpers.emplace_back(take_turns);
    } catch (const std::system_error&) {
      break;
    }
  }
  take_turns();
}

}  // namespace cenote
