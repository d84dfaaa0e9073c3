// What a path still has to forget: removals that nobody could write down in its metadata yet.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

#include "memory/segment.hpp"
#include "tiers/nvme/removal_log.hpp"
#include "tiers/nvme/removal_set.hpp"

namespace cenote::nvme {

/// A copy lies in memory that the keeper holds, so that the next worker goes on with them. Thread-safe; waits for no
/// disk.
class pending_removals {
 public:
  /// Bytes of the memory that `kept` needs.
  static constexpr std::uint64_t kept_bytes = removal_log::bytes;

  /// What a worker before us left in `kept` is pending again. `kept` may be empty: then nothing outlives the process.
  /// `owner` tells whose they are, and never changes for a path.
  pending_removals(memory::segment kept, std::uint64_t owner);

  void add(const removal_set& more);

  struct view {
    removal_set what;
    std::uint64_t version = 0;
  };
  [[nodiscard]] view look() const;
  /// The removals of look() are written down: forgets them, unless more came since.
  void settle(std::uint64_t version);

  [[nodiscard]] std::uint64_t size() const noexcept { return size_.load(); }

 private:
  void keep();

  mutable std::mutex mutex_;
  memory::segment kept_;
  const std::uint64_t owner_;
  std::uint64_t sequence_ = 0;  ///< of the newest place in kept_
  removal_set what_;
  std::uint64_t version_ = 0;
  std::atomic<std::uint64_t> size_ = 0;
};

}  // namespace cenote::nvme
