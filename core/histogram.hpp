// Counts of values over many orders of magnitude, in a fixed amount of memory: latencies above all.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cenote {

/// A log-linear histogram of unsigned values. Each power of two is cut into 32 equal buckets, so a value that is read
/// back is off by at most 1.6 %; values below 64 are exact. Values from 2^42 on (as nanoseconds: over an hour) count in
/// the last bucket. 10 KiB, no pointers: it may lie in shared memory.
///
/// One thread adds at a time. Any number may read and copy meanwhile; they see each count whole, though not all counts
/// of one moment.
class histogram {
 public:
  static constexpr unsigned sub_bits = 5;
  static constexpr unsigned value_bits = 42;
  static constexpr std::uint64_t largest = (std::uint64_t{1} << value_bits) - 1;

  histogram() noexcept = default;
  histogram(const histogram& other) noexcept { *this = other; }
  histogram& operator=(const histogram& other) noexcept;
  ~histogram() = default;

  void add(std::uint64_t value) noexcept {
    raise(counts_[bucket_of(value)], 1);
    raise(sum_, value);
    if (value > maximum_.load(std::memory_order_relaxed)) maximum_.store(value, std::memory_order_relaxed);
  }
  /// Adds all that `other` has counted.
  void merge(const histogram& other) noexcept;

  [[nodiscard]] std::uint64_t count() const noexcept;
  [[nodiscard]] std::uint64_t sum() const noexcept { return sum_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t maximum() const noexcept { return maximum_.load(std::memory_order_relaxed); }
  [[nodiscard]] double mean() const noexcept;
  /// The smallest value that is not below a share `q` of all, `q` from 0 to 1; 0 when nothing was counted.
  [[nodiscard]] std::uint64_t quantile(double q) const noexcept;
  /// How many values lie in buckets that end at or below `limit`: those up to it, give or take its bucket.
  [[nodiscard]] std::uint64_t count_up_to(std::uint64_t limit) const noexcept;

  [[nodiscard]] static constexpr std::size_t bucket_of(std::uint64_t value) noexcept {
    if (value > largest) value = largest;
    if (value < std::uint64_t{2} << sub_bits) return value;
    const auto shift = static_cast<unsigned>(std::bit_width(value)) - 1 - sub_bits;
    return (std::size_t{shift} << sub_bits) + (value >> shift);
  }
  /// The smallest value of a bucket.
  [[nodiscard]] static constexpr std::uint64_t bucket_floor(std::size_t bucket) noexcept {
    if (bucket < std::size_t{2} << sub_bits) return bucket;
    const std::size_t shift = (bucket >> sub_bits) - 1;
    return (bucket - (shift << sub_bits)) << shift;
  }
  static constexpr std::size_t buckets = ((value_bits - sub_bits) << sub_bits) + (std::size_t{1} << sub_bits);

 private:
  using word = std::atomic<std::uint64_t>;
  static_assert(word::is_always_lock_free);

  /// One writer: a load and a store, not a locked addition.
  static void raise(word& what, std::uint64_t amount) noexcept {
    what.store(what.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
  }

  std::array<word, buckets> counts_{};
  word sum_{0};
  word maximum_{0};
};

}  // namespace cenote
