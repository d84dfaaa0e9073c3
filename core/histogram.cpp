#include "core/histogram.hpp"

#include <algorithm>
#include <cmath>

namespace cenote {

static_assert(histogram::bucket_of(histogram::largest) == histogram::buckets - 1);
static_assert(histogram::bucket_floor(histogram::bucket_of(63)) == 63);

histogram& histogram::operator=(const histogram& other) noexcept {
  if (this == &other) return *this;
  for (std::size_t i = 0; i < buckets; ++i) {
    counts_[i].store(other.counts_[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
  }
  sum_.store(other.sum(), std::memory_order_relaxed);
  maximum_.store(other.maximum(), std::memory_order_relaxed);
  return *this;
}

void histogram::merge(const histogram& other) noexcept {
  for (std::size_t i = 0; i < buckets; ++i) raise(counts_[i], other.counts_[i].load(std::memory_order_relaxed));
  raise(sum_, other.sum());
  maximum_.store(std::max(maximum(), other.maximum()), std::memory_order_relaxed);
}

std::uint64_t histogram::count() const noexcept {
  std::uint64_t all = 0;
  for (const word& each : counts_) all += each.load(std::memory_order_relaxed);
  return all;
}

double histogram::mean() const noexcept {
  const std::uint64_t all = count();
  return all == 0 ? 0.0 : static_cast<double>(sum()) / static_cast<double>(all);
}

std::uint64_t histogram::quantile(double q) const noexcept {
  const std::uint64_t all = count();
  if (all == 0) return 0;
  const auto rank = static_cast<std::uint64_t>(std::ceil(std::clamp(q, 0.0, 1.0) * static_cast<double>(all)));
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < buckets; ++i) {
    seen += counts_[i].load(std::memory_order_relaxed);
    if (seen < std::max<std::uint64_t>(rank, 1)) continue;
    if (i + 1 == buckets) break;
    // The middle of the bucket; never more than what was really seen.
    const std::uint64_t middle = bucket_floor(i) + (bucket_floor(i + 1) - bucket_floor(i)) / 2;
    return std::min(middle, maximum());
  }
  return maximum();
}

std::uint64_t histogram::count_up_to(std::uint64_t limit) const noexcept {
  std::uint64_t all = 0;
  for (std::size_t i = 0; i <= bucket_of(limit); ++i) all += counts_[i].load(std::memory_order_relaxed);
  return all;
}

}  // namespace cenote
