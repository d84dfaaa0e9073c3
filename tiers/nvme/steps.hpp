// The root of the threads of a path: what one of them does not expect must not end the process.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <thread>

namespace cenote::nvme {

/// Hears of exceptions that nobody took, on the thread they came up on.
using exception_callback = std::function<void(const std::string& what)>;

inline constexpr auto pause_after_exception = std::chrono::milliseconds(100);

/// Calls `step` until it returns false. One that throws is called again after a pause, so it must go on with what it
/// left, and `heard` is told each time.
template <class Step>
void run_steps(Step step, const exception_callback& heard) noexcept {
  const auto tell = [&](const std::string& what) {
    if (heard) heard(what);
  };
  while (true) {
    try {
      try {
        if (!step()) return;
        continue;
      } catch (const std::exception& thrown) {
        tell(thrown.what());
      } catch (...) {
        tell("not a std::exception");
      }
    } catch (...) {  // there is not even memory to tell of it: the next one will be heard
    }
    std::this_thread::sleep_for(pause_after_exception);
  }
}

}  // namespace cenote::nvme
