// The misses of LRU at many capacities, estimated from a stream of requests in memory of a fixed size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "simulation/optimize/sampled_misses.hpp"
#include "simulation/optimize/sampled_stack.hpp"

namespace cenote::simulation {

/// The counts of interval_curve, estimated: LRU that goes from the tail of a request to its head, at capacities of at
/// least the longest request. Chains are prefixes, so leading hits end at the first miss and what is behind it misses,
/// too: each block may be judged alone. It misses where its distance, the blocks that were used since, is not below the
/// capacity.
///
/// Misses are estimated and never hits: hardly any of a hot block's uses is a miss, but with or without a system
/// prompt's first block a sample's hits differ by tens of points. The most used blocks count exactly, all others where
/// their key is in a sample of rate R, with the weight 1/R; a distance is the exact blocks and 1/R for each sampled
/// one. R falls so that the sample keeps its size, and what was counted keeps its weight (fixed-size SHARDS: C.
/// Waldspurger, N. Park, A. Garthwaite, I. Ahmad, "Efficient MRC construction with SHARDS", FAST 2015). Which blocks
/// are exact follows from the stream and a lot that knows no sample, so no block is preferred: the first block of a
/// chain that is not exact takes the place of the least used one with a probability of 1/(its uses + 1) (R. Ben-Basat,
/// X. Chen, G. Einziger, R. Friedman, Y. Kassner, "Randomized admission policy for efficient top-k, frequency, and
/// volume estimation", IEEE/ACM Transactions on Networking 27(4), 2019). It counts so from its next use on; one that
/// leaves stays as a sampled block if its key is in the sample.
///
/// About 0.7 MiB, or 60 bytes a block of a larger sample and 0.2 MiB, taken once. O(blocks of the request) for the
/// sample's filter, O(log n) for each exact or sampled block. Nothing throws, whatever the keys are. Not thread-safe.
class sampled_curve {
 public:
  static constexpr std::size_t usual_sampled = 8'192;
  static constexpr std::size_t fewest_sampled = 1'024;
  static constexpr std::size_t most_sampled = std::size_t{1} << 24;
  static constexpr std::size_t most_exact = 1'024;
  /// C · R for the smallest capacity that is estimated; below, a distance is made from too few blocks.
  static constexpr double least_sampled = 500;

  struct settings {
    /// Blocks deeper than this are forgotten: no capacity above it can be asked for, and R falls no more than needed.
    std::uint64_t largest = ~std::uint32_t{0};
    double half_life = 0;                 ///< requests after which one counts half; 0: all count the same
    std::uint64_t salt = 1;               ///< of the sample
    std::size_t sampled = usual_sampled;  ///< blocks of the sample, at most; fewest_sampled to most_sampled
  };
  struct point {
    std::uint64_t capacity = 0;  ///< blocks
    double miss_ratio = 0;       ///< of all blocks that were asked for
    /// Standard error of the ratio: that of the misses (sampled_misses), and half the difference between the misses at
    /// capacities a standard error of a distance apart, √(C · (1 − R) / R) to either side, and the rounding of
    /// distances. They come from the same sample, so they are added as they are.
    double error = 0;
  };

  explicit sampled_curve(const settings& setup);

  /// A request for the blocks of `chain`, head first, all of which are there afterwards.
  void add(std::span<const std::uint64_t> chain);

  /// Nothing where C · R < 500 (with R = 1, where nothing is estimated, each capacity is given), above `largest`, and
  /// before the first block.
  [[nodiscard]] std::optional<point> estimate(std::uint64_t capacity) const;
  /// The smallest capacity from `floor` to `ceiling` that hits at least that share of all blocks that were asked for.
  /// Nothing where none of them does, or where a smaller one, of which nothing is known, may do so, too.
  [[nodiscard]] std::optional<point> smallest_with(double hit_ratio, std::uint64_t floor, std::uint64_t ceiling) const;
  [[nodiscard]] std::uint64_t least() const noexcept;
  [[nodiscard]] std::uint64_t largest() const noexcept { return settings_.largest; }
  [[nodiscard]] double rate() const noexcept;
  [[nodiscard]] std::uint64_t requests() const noexcept { return requests_; }
  /// The misses of a cache without end: different blocks, with the standard error of their number.
  [[nodiscard]] sampled_misses::sum endless() const noexcept { return misses_.sum_beyond(sampled_misses::endless); }
  /// The most blocks of a request: below, LRU in this order has other misses.
  [[nodiscard]] std::uint64_t longest() const noexcept { return longest_; }
  [[nodiscard]] std::size_t exact() const noexcept { return stack_.exact(); }
  [[nodiscard]] std::size_t sampled() const noexcept { return stack_.sampled(); }
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  /// An exact block.
  struct counted {
    std::uint64_t key = 0;
    std::uint32_t uses = 0;
    std::uint32_t depth = 0;  ///< in its chain
  };

  void age();
  [[nodiscard]] std::size_t take_exact_run(std::span<const std::uint64_t> chain);
  void use_sampled(std::uint64_t key);
  void use_exact(std::uint64_t key);
  void admit(std::span<const std::uint64_t> chain, std::size_t depth);
  [[nodiscard]] counted* make_place(std::span<const std::uint64_t> run);
  void demote(std::uint64_t key);
  void make_exact(std::uint64_t key);
  void make_room();
  [[nodiscard]] bool is_sampled(std::uint64_t key) const noexcept;
  [[nodiscard]] double distance_of(std::uint32_t entry) const noexcept;
  [[nodiscard]] std::uint64_t draw() noexcept;

  settings settings_;
  sampled_stack stack_;
  sampled_misses misses_;
  std::vector<counted> counted_;     ///< the exact blocks
  std::vector<std::uint16_t> uses_;  ///< by entry of the stack: its place in counted_
  std::uint64_t threshold_;          ///< places of the sample are below: R · 2^32
  std::uint64_t lot_;                ///< state of draw()
  std::uint32_t least_uses_ = 0;     ///< at most the least of counted_
  std::uint64_t counts_ = 0;         ///< uses that counted_ got since they were halved
  double unit_ = 1;                  ///< what a use counts now
  double growth_ = 1;                ///< of that, for a request
  double blocks_ = 0;                ///< asked for, in units
  std::uint64_t requests_ = 0;
  std::uint64_t longest_ = 0;
};

}  // namespace cenote::simulation
