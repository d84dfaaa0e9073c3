#include "simulation/optimize/interval_curve.hpp"

#include <algorithm>
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

/// Counts by request, and their sums over the first ones.
class request_counts {
 public:
  explicit request_counts(std::size_t requests) : tree_(requests + 1) {}

  /// Wraps where `amount` stands for a negative one, and so does the sum.
  void add(std::size_t request, std::uint64_t amount) noexcept {
    total_ += amount;
    for (std::size_t i = request + 1; i < tree_.size(); i += i & -i) tree_[i] += amount;
  }
  /// Of all requests behind `request`.
  [[nodiscard]] std::uint64_t sum_after(std::size_t request) const noexcept {
    std::uint64_t sum = total_;
    for (std::size_t i = request + 1; i > 0; i -= i & -i) sum -= tree_[i];
    return sum;
  }

 private:
  std::vector<std::uint64_t> tree_;
  std::uint64_t total_ = 0;
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

  /// The hits by capacity: those of all distances below it.
  [[nodiscard]] huge_vector<interval_curve::hits> take_sums() {
    interval_curve::hits sum;
    std::uint64_t there = 0;
    for (interval_curve::hits& each : steps_) {
      there += each.blocks;
      const std::uint64_t missing_tokens = each.tokens;
      each = sum;
      sum.blocks += there;
      sum.tokens += there * trace_.block_tokens() - missing_tokens;
    }
    steps_.pop_back();
    return std::move(steps_);
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
      const std::uint64_t distance = unused_.sum_after(user) + begin;
      const std::uint64_t size = end - begin;
      steps_[distance].blocks += 1;
      steps_[distance + size].blocks -= 1;
      count_partial(request, begin, end, distance);
      unused_.add(user, -size);
      for (const std::uint32_t block : blocks.subspan(begin, size)) users_[block] = number;
      begin = end;
    }
    const auto fresh = blocks.subspan(begin);
    for (const std::uint32_t block : fresh) {
      if (block != first_come_) return false;
      users_[first_come_++] = number;
    }
    unused_.add(number, blocks.size());
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
  void count_partial(const trace::entry& request, std::size_t begin, std::size_t end, std::uint64_t distance) {
    const std::uint64_t size = trace_.block_tokens();
    for (std::size_t i = std::max<std::size_t>(begin, request.tokens / size); i < end; ++i) {
      const std::uint64_t tokens = request.tokens > i * size ? request.tokens - i * size : 0;
      steps_[distance + (i - begin)].tokens += size - std::min(tokens, size);
    }
  }

  const trace& trace_;
  huge_vector<std::uint32_t> users_;  ///< by block: the request that used it last
  std::uint32_t first_come_ = 0;      ///< the number of the next block that comes for the first time
  request_counts unused_;             ///< blocks that are left to a request
  /// By distance: pieces that begin there less those that end before it, which wraps; tokens that its blocks lack.
  huge_vector<interval_curve::hits> steps_;
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
  curve.by_capacity_ = over.take_sums();
  return curve;
}

interval_curve::hits interval_curve::hits_with(std::uint32_t capacity) const noexcept {
  return by_capacity_[std::min<std::size_t>(capacity, by_capacity_.size() - 1)];
}

std::optional<std::uint32_t> interval_curve::smallest_with(std::uint64_t tokens) const noexcept {
  const auto found = std::lower_bound(by_capacity_.begin() + longest_, by_capacity_.end(), tokens,
                                      [](const hits& each, std::uint64_t least) { return each.tokens < least; });
  if (found == by_capacity_.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - by_capacity_.begin());
}

}  // namespace cenote::simulation
