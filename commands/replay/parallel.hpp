// Independent pieces of work on all cores.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

namespace cenote::replay {

/// Calls `work(i)` for each i below `count`, on as many threads as there are cores. What a call throws ends the work,
/// and is thrown to the caller when all threads have ended; of several exceptions, the first one.
inline void run_all(std::size_t count, const std::function<void(std::size_t)>& work) {
  std::atomic<std::size_t> next = 0;
  std::atomic_flag is_broken;
  std::exception_ptr failure;
  const auto take = [&] {
    try {
      for (std::size_t i = next++; i < count && !is_broken.test(); i = next++) work(i);
    } catch (...) {
      if (!is_broken.test_and_set()) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> helpers;
    const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
    for (std::size_t i = 1; i < std::min(cores, count); ++i) helpers.emplace_back(take);
    take();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace cenote::replay
