#include "simulation/optimize/interval_curve.hpp"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

namespace cenote::simulation {

namespace {

constexpr std::uint32_t none = ~std::uint32_t{0};

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

struct block_use {
  std::uint32_t user = none;    ///< the request that used it last
  std::uint32_t parent = none;  ///< the block behind which it comes, plus one; 0: none, it is a first one
};

class pass {
 public:
  explicit pass(const trace& trace)
      : trace_(trace),
        places_(trace.distinct()),
        unused_(trace.requests().size()),
        steps_(trace.distinct() + std::size_t{2}) {}

  /// Whether each chain was a prefix.
  bool run() {
    const auto requests = trace_.requests();
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto blocks = trace_.blocks(requests[i]);
      if (!follow(blocks)) return false;
      take(static_cast<std::uint32_t>(i), requests[i], blocks);
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
  bool follow(std::span<const std::uint32_t> blocks) {
    std::uint32_t parent = 0;
    for (const std::uint32_t block : blocks) {
      block_use& place = places_[block];
      if (place.parent == none) place.parent = parent;
      if (place.parent != parent) return false;
      parent = block + 1;
    }
    return true;
  }

  void take(std::uint32_t number, const trace::entry& request, std::span<const std::uint32_t> blocks) {
    std::size_t begin = 0;
    while (begin < blocks.size() && places_[blocks[begin]].user != none) {
      const std::uint32_t user = places_[blocks[begin]].user;
      // Blocks that this request took so far were left to younger ones.
      const std::uint64_t distance = unused_.sum_after(user) + begin;
      std::size_t end = begin;
      while (end < blocks.size() && places_[blocks[end]].user == user) places_[blocks[end++]].user = number;
      const std::uint64_t size = end - begin;
      steps_[distance].blocks += 1;
      steps_[distance + size].blocks -= 1;
      count_partial(request, begin, end, distance);
      unused_.add(user, -size);
      begin = end;
    }
    for (std::size_t i = begin; i < blocks.size(); ++i) places_[blocks[i]].user = number;
    unused_.add(number, blocks.size());
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
  huge_vector<block_use> places_;
  request_counts unused_;  ///< blocks that are left to a request
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

}  // namespace cenote::simulation
