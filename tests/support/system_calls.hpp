// Counts the system calls that a test program makes by functions of the C library: those by which a session rings,
// waits, maps memory and makes a thread sleep are the ones here.
#pragma once

#include <cstdint>

namespace cenote::test {

/// Calls of one thread. What the C library does by itself, as futexes of its locks, is not seen.
struct system_call_counts {
  std::uint64_t sent = 0;      ///< write, send, sendmsg: doorbells, frames
  std::uint64_t received = 0;  ///< read, recv, recvmsg
  std::uint64_t waited = 0;    ///< poll, ppoll, nanosleep, clock_nanosleep, pthread_cond_timedwait …
  std::uint64_t mapped = 0;    ///< mmap, munmap, madvise

  [[nodiscard]] std::uint64_t all() const noexcept { return sent + received + waited + mapped; }
};

/// Of the calling thread since it began.
[[nodiscard]] system_call_counts system_calls() noexcept;

/// Runs `work` and counts the calls of the calling thread meanwhile.
template <class Work>
[[nodiscard]] system_call_counts system_calls_during(Work&& work) {
  const system_call_counts before = system_calls();
  work();
  const system_call_counts after = system_calls();
  return {after.sent - before.sent, after.received - before.received, after.waited - before.waited,
          after.mapped - before.mapped};
}

}  // namespace cenote::test
