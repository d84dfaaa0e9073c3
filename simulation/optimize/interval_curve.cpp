#include "simulation/optimize/interval_curve.hpp"

#include <algorithm>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

namespace cenote::simulation {

namespace {

/// The leading numbers of two spans of one size that are equal; some at a time, as compilers turn that into one step.
std::size_t equal_count(std::span<const std::uint32_t> one, std::span<const std::uint32_t> other) noexcept {
  constexpr std::size_t step = 8;
  std::size_t count = 0;
  for (; count + step <= one.size(); count += step) {
    std::uint32_t differences = 0;
    for (std::size_t i = 0; i < step; ++i) differences |= one[count + i] ^ other[count + i];
    if (differences != 0) break;
  }
  while (count < one.size() && one[count] == other[count]) ++count;
  return count;
}

/// Counts by request, and their sums over the last ones: a tree that grows at its end.
class request_counts {
 public:
  explicit request_counts(std::size_t requests) { tree_.reserve(requests + 1); }

  /// Of the next request.
  void append(std::uint32_t count) {
    const std::size_t place = tree_.size();
    const std::size_t first = place & (place - 1);
    total_ += count;
    for (std::size_t i = place - 1; i > first; i &= i - 1) count += tree_[i];
    tree_.push_back(count);
  }
  void subtract(std::size_t request, std::uint32_t amount) noexcept {
    total_ -= amount;
    for (std::size_t i = request + 1; i < tree_.size(); i += i & -i) tree_[i] -= amount;
  }
  /// Of all requests behind `request`.
  [[nodiscard]] std::uint32_t sum_after(std::size_t request) const noexcept {
    std::uint32_t sum = total_;
    for (std::size_t i = request + 1; i > 0; i &= i - 1) sum -= tree_[i];
    return sum;
  }

 private:
  std::vector<std::uint32_t> tree_{0};
  std::uint32_t total_ = 0;  ///< of all: at most the distinct blocks
};

class pass {
 public:
  explicit pass(const trace& trace)
      : trace_(trace), users_(trace.distinct()), unused_(trace.requests().size()), steps_(trace.distinct() + 2UZ) {}

  /// Whether each chain was a prefix.
  bool run() {
    const auto requests = trace_.requests();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      if (!take(static_cast<std::uint32_t>(i), requests[i])) return false;
    }
    return true;
  }

  /// Hits by capacity: the pieces that a distance is in, of all distances below.
  [[nodiscard]] huge_vector<std::uint64_t> take_blocks() {
    std::uint64_t sum = 0;
    std::uint64_t there = 0;
    for (std::uint64_t& each : steps_) {
      there += each;
      each = sum;
      sum += there;
    }
    steps_.pop_back();
    return std::move(steps_);
  }
  /// Tokens by capacity that those blocks lack; empty: all are full.
  [[nodiscard]] huge_vector<std::uint64_t> take_absent_tokens() {
    std::uint64_t sum = 0;
    for (std::uint64_t& each : absent_tokens_) sum += std::exchange(each, sum);
    return std::move(absent_tokens_);
  }

 private:
  /// Pieces first, then what comes for the first time: such blocks have the next numbers, one after the other.
  bool take(std::uint32_t number, const trace::entry& request) {
    const auto blocks = trace_.blocks(request);
    std::size_t begin = 0;
    while (begin < blocks.size() && blocks[begin] < first_come_) {
      const std::size_t end = piece_end(number, blocks, begin);
      if (end == begin) return false;
      // Blocks that this request took so far were left to younger ones.
      const std::uint32_t user = users_[blocks[begin]];
      const std::size_t distance = unused_.sum_after(user) + begin;
      const std::size_t size = end - begin;
      steps_[distance] += 1;
      steps_[distance + size] -= 1;
      count_partial(request, begin, end, distance);
      unused_.subtract(user, static_cast<std::uint32_t>(size));
      for (const std::uint32_t block : blocks.subspan(begin, size)) users_[block] = number;
      begin = end;
    }
    const auto fresh = static_cast<std::uint32_t>(blocks.size() - begin);
    if (fresh > 0 && blocks.back() != first_come_ + fresh - 1) return false;  // one of them has come before, or twice
    std::fill_n(users_.begin() + first_come_, fresh, number);
    first_come_ += fresh;
    unused_.append(static_cast<std::uint32_t>(blocks.size()));
    return true;
  }

  /// The end of the piece that begins with a block which has come before; the beginning: the chain is no prefix. The
  /// last user of a block has its path, of which this request has the same part, or the block is behind two paths. A
  /// path's blocks get no younger users with depth, so all that both have from here on is still that user's.
  [[nodiscard]] std::size_t piece_end(std::uint32_t number, std::span<const std::uint32_t> blocks,
                                      std::size_t begin) const noexcept {
    const std::uint32_t user = users_[blocks[begin]];
    const auto path = trace_.blocks(trace_.requests()[user]);
    if (user == number || begin >= path.size()) return begin;
    if (begin > 0 && path[begin - 1] != blocks[begin - 1]) return begin;
    const std::size_t longest = std::min(path.size(), blocks.size());
    return begin + equal_count(blocks.subspan(begin, longest - begin), path.subspan(begin, longest - begin));
  }

  /// Blocks behind the request's tokens, mostly the last one, have less than a block of them.
  void count_partial(const trace::entry& request, std::size_t begin, std::size_t end, std::size_t distance) {
    const std::uint64_t size = trace_.block_tokens();
    for (std::size_t i = std::max<std::size_t>(begin, request.tokens / size); i < end; ++i) {
      const std::uint64_t tokens = request.tokens > i * size ? request.tokens - i * size : 0;
      if (absent_tokens_.empty()) absent_tokens_.resize(trace_.distinct() + 1UZ);
      absent_tokens_[distance + (i - begin)] += size - std::min(tokens, size);
    }
  }

  const trace& trace_;
  huge_vector<std::uint32_t> users_;  ///< by block: the request that used it last
  std::uint32_t first_come_ = 0;      ///< the number of the next block that comes for the first time
  request_counts unused_;             ///< blocks that are left to a request
  huge_vector<std::uint64_t> steps_;  ///< by distance: pieces that begin there less those that end before it; it wraps
  huge_vector<std::uint64_t> absent_tokens_;  ///< by distance; empty while all blocks are full
};

}  // namespace

std::optional<interval_curve> interval_curve::measure(const trace& trace) {
  if (!trace.stores_all()) return std::nullopt;
  pass over(trace);
  if (!over.run()) return std::nullopt;
  interval_curve curve;
  for (const trace::entry& each : trace.requests()) {
    curve.longest_ = std::max(curve.longest_, static_cast<std::uint32_t>(each.count));
  }
  curve.block_tokens_ = trace.block_tokens();
  curve.blocks_ = over.take_blocks();
  curve.absent_tokens_ = over.take_absent_tokens();
  return curve;
}

interval_curve::hits interval_curve::hits_with(std::uint32_t capacity) const noexcept {
  const std::size_t place = std::min<std::size_t>(capacity, blocks_.size() - 1);
  const std::uint64_t absent = absent_tokens_.empty() ? 0 : absent_tokens_[place];
  return {.blocks = blocks_[place], .tokens = blocks_[place] * block_tokens_ - absent};
}

}  // namespace cenote::simulation
