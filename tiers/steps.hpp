// The root of the threads that do I/O: what one of them does not expect must not end the process.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <thread>

namespace cenote {

/// Called with an uncaught exception, on the thread that threw it.
using exception_callback = std::function<void(const std::string& what)>;

inline constexpr auto pause_after_exception = std::chrono::milliseconds(100);

/// Calls `step` until it returns false. One that throws is called again after a pause, so it must be able to resume;
/// each exception is passed to `on_exception`.
template <class Step>
void run_steps(Step step, const exception_callback& on_exception) noexcept {
  const auto tell = [&](const std::string& what) {
    if (on_exception) on_exception(what);
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
    } catch (...) {  // not even memory to report it; the next one is reported
    }
    std::this_thread::sleep_for(pause_after_exception);
  }
}

}  // namespace cenote
