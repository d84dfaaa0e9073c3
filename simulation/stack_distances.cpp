#include "simulation/stack_distances.hpp"

#include <algorithm>
#include <bit>
#include <numeric>
#include <span>

namespace cenote::simulation {

namespace {

constexpr std::size_t bits = 64;
constexpr std::size_t group_bits = bits * 64;
constexpr std::size_t super_bits = group_bits * 64;
constexpr std::size_t near_words = 24;  // about what the long way costs

std::uint64_t count(std::uint64_t word) noexcept {
  return static_cast<std::uint64_t>(std::popcount(word));
}

/// The bits of a word above `bit`.
constexpr std::uint64_t bits_above(std::size_t bit) noexcept {
  return bit == bits - 1 ? 0 : ~std::uint64_t{0} << (bit + 1);
}

}  // namespace

// ---------------------------------------------------------------------------------------------- positions

lru_curve::recency::recency(std::size_t positions)
    : words_(positions / bits + 1), groups_(positions / group_bits + 1), supers_(positions / super_bits + 1) {}

void lru_curve::recency::set(std::size_t position) noexcept {
  words_[position / bits] |= std::uint64_t{1} << position % bits;
  ++groups_[position / group_bits];
  ++supers_[position / super_bits];
}

void lru_curve::recency::clear(std::size_t position) noexcept {
  words_[position / bits] &= ~(std::uint64_t{1} << position % bits);
  --groups_[position / group_bits];
  --supers_[position / super_bits];
}

std::uint64_t lru_curve::recency::count_behind(std::size_t position) const noexcept {
  const std::size_t word = position / bits;
  const std::size_t group = position / group_bits;
  const std::size_t super = position / super_bits;
  std::uint64_t sum = count(words_[word] & bits_above(position % bits));
  for (std::size_t w = word + 1; w < std::min(words_.size(), (group + 1) * bits); ++w) sum += count(words_[w]);
  for (std::size_t g = group + 1; g < std::min(groups_.size(), (super + 1) * bits); ++g) sum += groups_[g];
  for (std::size_t s = super + 1; s < supers_.size(); ++s) sum += supers_[s];
  return sum;
}

std::uint64_t lru_curve::recency::count_behind(std::size_t position, std::size_t neighbour,
                                               std::uint64_t behind_neighbour) const noexcept {
  const auto [low, high] = std::minmax(position, neighbour);
  if (high / bits - low / bits > near_words) return count_behind(position);
  const std::uint64_t difference = count_between(low, high);
  return position < neighbour ? behind_neighbour + difference : behind_neighbour - difference;
}

std::uint64_t lru_curve::recency::count_between(std::size_t low, std::size_t high) const noexcept {
  const std::uint64_t first = words_[low / bits] & bits_above(low % bits);
  if (low / bits == high / bits) return count(first & ~bits_above(high % bits));
  std::uint64_t sum = count(first) + count(words_[high / bits] & ~bits_above(high % bits));
  for (std::size_t w = low / bits + 1; w < high / bits; ++w) sum += count(words_[w]);
  return sum;
}

// ---------------------------------------------------------------------------------------------- the pass

lru_curve::lru_curve(const trace& trace)
    : by_distance_(trace.distinct() + std::size_t{1}),
      blocks_(trace.stream().size()),
      tokens_(trace.tokens()),
      distinct_(trace.distinct()),
      used_(trace.stream().size()),
      last_(trace.distinct(), never) {
  for (const trace::entry& each : trace.requests()) {
    count_prefix(trace, each);
    count_stream(trace.blocks(each));
  }
  last_ = {};
  used_ = recency(0);
  std::partial_sum(by_distance_.begin(), by_distance_.end(), by_distance_.begin(), [](const sums& a, const sums& b) {
    return sums{a.stream_hits + b.stream_hits, a.prefix_hits + b.prefix_hits, a.prefix_tokens + b.prefix_tokens};
  });
}

/// Counts the leading blocks that are there when the request comes: at capacities where the deepest of them still is.
void lru_curve::count_prefix(const trace& trace, const trace::entry& entry) {
  std::uint64_t deepest = 0;
  std::uint64_t tokens = 0;
  std::uint64_t behind = 0;
  std::size_t before = never;
  for (const std::uint32_t block : trace.blocks(entry)) {
    const std::size_t position = last_[block];
    if (position == never) return;
    behind = before == never ? used_.count_behind(position) : used_.count_behind(position, before, behind);
    before = position;
    deepest = std::max(deepest, behind + 1);
    const std::uint64_t with = std::min(tokens + trace.block_tokens(), entry.tokens);
    by_distance_[deepest].prefix_hits += 1;
    by_distance_[deepest].prefix_tokens += with - tokens;
    tokens = with;
  }
}

void lru_curve::count_stream(std::span<const std::uint32_t> blocks) {
  std::uint64_t behind = 0;
  std::size_t before = never;
  for (const std::uint32_t block : blocks) {
    const std::size_t position = last_[block];
    if (position != never) {
      behind = before == never ? used_.count_behind(position) : used_.count_behind(position, before, behind);
      before = position;
      ++by_distance_[behind + 1].stream_hits;
      used_.clear(position);
    }
    used_.set(next_);
    last_[block] = next_++;
    ++behind;  // this block lies behind all others now
  }
}

replay_sums lru_curve::at(std::uint32_t capacity) const {
  const std::uint32_t held = std::min(capacity, distinct_);
  const sums& hits = by_distance_[held];
  replay_sums out{.stream_hits = hits.stream_hits,
                  .prefix_hits = hits.prefix_hits,
                  .prefix_tokens = hits.prefix_tokens,
                  .blocks = blocks_,
                  .tokens = tokens_};
  out.inserts = capacity == 0 ? 0 : blocks_ - hits.stream_hits;
  out.evictions = capacity == 0 ? 0 : out.inserts - held;
  return out;
}

}  // namespace cenote::simulation
