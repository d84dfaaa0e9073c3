// The one fence of the shared-memory protocol.
#pragma once

#include <atomic>

namespace cenote::memory {

/// Orders everything before it against everything after it, between processes: the two halves of the pin protocol
/// (reader: pins, fence, versions; owner: versions, fence, pins) and of the doorbells (tail, fence, sleep flag).
/// gcc's ThreadSanitizer knows no fences, so there it is a sequentially consistent read-modify-write.
inline void full_fence() noexcept {
#ifdef CENOTE_TSAN
  static std::atomic<unsigned> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

/// Orders earlier loads before later ones: for a reader without a pin, which reads the version again after the data.
inline void load_fence() noexcept {
#ifdef CENOTE_TSAN
  full_fence();
#else
  std::atomic_thread_fence(std::memory_order_acquire);
#endif
}

/// Orders earlier stores before later ones: a key before the value that makes it visible.
inline void store_fence() noexcept {
#ifdef CENOTE_TSAN
  full_fence();
#else
  std::atomic_thread_fence(std::memory_order_release);
#endif
}

}  // namespace cenote::memory
