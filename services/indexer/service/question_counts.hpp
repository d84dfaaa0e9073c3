// Counts of the questions that the service has answered, each thread's own and all together.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "core/histogram.hpp"
#include "services/indexer/forest/epochs.hpp"

namespace cenote::indexer {

/// One thread adds, others may read meanwhile.
class question_counts {
 public:
  /// Adds an answer: the blocks of its prompt, and those of the pod with the longest prefix.
  void add(std::uint64_t blocks, std::uint64_t longest, std::chrono::nanoseconds time) noexcept {
    raise(blocks_, blocks);
    raise(hit_blocks_, longest);
    if (longest > 0) raise(hits_, 1);
    times_.add(static_cast<std::uint64_t>(time.count()));
  }
  /// Adds all that `other` has counted.
  void merge(const question_counts& other) noexcept {
    raise(blocks_, other.blocks());
    raise(hit_blocks_, other.hit_blocks());
    raise(hits_, other.hits());
    times_.merge(other.times_);
  }

  [[nodiscard]] std::uint64_t blocks() const noexcept { return blocks_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t hit_blocks() const noexcept { return hit_blocks_.load(std::memory_order_relaxed); }
  /// Questions for which some pod has the first block.
  [[nodiscard]] std::uint64_t hits() const noexcept { return hits_.load(std::memory_order_relaxed); }
  [[nodiscard]] const histogram& times() const noexcept { return times_; }

 private:
  using counter = std::atomic<std::uint64_t>;

  static void raise(counter& sum, std::uint64_t amount) noexcept {
    sum.store(sum.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }

  counter blocks_{0}, hit_blocks_{0}, hits_{0};
  histogram times_;  ///< nanoseconds
};

/// The counts of all threads that ask the index, of which there are as many as readers at most. Thread-safe.
class question_totals {
 public:
  /// Counts for one more thread, kept until the end; null: there are too many.
  [[nodiscard]] question_counts* add() {
    const std::size_t place = next_.fetch_add(1, std::memory_order_relaxed);
    if (place >= counts_.size()) return nullptr;
    counts_[place].counts = std::make_unique<question_counts>();
    counts_[place].visible.store(counts_[place].counts.get(), std::memory_order_release);
    return counts_[place].counts.get();
  }
  void write_sum(question_counts& sum) const noexcept {
    for (const thread_counts& each : counts_) {
      const question_counts* const counts = each.visible.load(std::memory_order_acquire);
      if (counts != nullptr) sum.merge(*counts);
    }
  }

 private:
  struct thread_counts {
    std::unique_ptr<question_counts> counts;
    std::atomic<const question_counts*> visible{nullptr};
  };

  std::atomic<std::size_t> next_{0};
  std::array<thread_counts, epoch_table::most_readers> counts_;
};

}  // namespace cenote::indexer
