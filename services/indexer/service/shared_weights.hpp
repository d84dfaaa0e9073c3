// The weights of media, which a reload replaces while questions are answered.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>

#include "services/indexer/forest/prefix_reader.hpp"

namespace cenote::indexer {

/// Thread-safe. A reader looks at the version, and takes the lock only when it is another one.
class shared_weights {
 public:
  void set(const medium_weights& weights) {
    const std::lock_guard lock(mutex_);
    weights_ = weights;
    version_.fetch_add(1, std::memory_order_release);
  }
  /// From 1 on, once they were set.
  [[nodiscard]] std::uint64_t version() const noexcept { return version_.load(std::memory_order_acquire); }
  [[nodiscard]] medium_weights get() const {
    const std::lock_guard lock(mutex_);
    return weights_;
  }

 private:
  std::atomic<std::uint64_t> version_{0};
  mutable std::mutex mutex_;
  medium_weights weights_;
};

}  // namespace cenote::indexer
