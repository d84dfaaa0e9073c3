// LRU of every capacity in one pass (R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger, "Evaluation techniques for
// storage hierarchies", IBM Systems Journal 9(2), 1970).
#pragma once

#include <cstdint>
#include <vector>

#include "core/huge_vector.hpp"

#include "simulation/simulation.hpp"
#include "simulation/trace.hpp"

namespace cenote::simulation {

/// The hits of LRU in the order `forward` at any capacity, equal to those of simulate() to the block. A block is a hit
/// where the capacity is larger than the number of different blocks used since its last use.
class lru_curve {
 public:
  explicit lru_curve(const trace& trace);

  [[nodiscard]] replay_sums at(std::uint32_t capacity) const;

 private:
  /// By capacity, up to all distinct blocks: hits of that distance at first, then of all up to it.
  struct sums {
    std::uint64_t stream_hits = 0;
    std::uint64_t prefix_hits = 0;
    std::uint64_t prefix_tokens = 0;
  };

  void count_prefix(const trace& trace, const trace::entry& entry);
  void count_stream(std::span<const std::uint32_t> blocks);

  /// The positions of the stream at which a block was used last, in a set that counts what lies behind a position.
  class recency {
   public:
    explicit recency(std::size_t positions);
    void set(std::size_t position) noexcept;
    void clear(std::size_t position) noexcept;
    /// Positions in the set behind `position`.
    [[nodiscard]] std::uint64_t count_behind(std::size_t position) const noexcept;
    /// The same, from the number of positions behind `neighbour`, which costs less where the two are close.
    [[nodiscard]] std::uint64_t count_behind(std::size_t position, std::size_t neighbour,
                                             std::uint64_t behind_neighbour) const noexcept;

   private:
    /// Positions in the set behind `low`, up to `high`.
    [[nodiscard]] std::uint64_t count_between(std::size_t low, std::size_t high) const noexcept;

    huge_vector<std::uint64_t> words_;
    std::vector<std::uint32_t> groups_;  ///< of 64 words
    std::vector<std::uint32_t> supers_;  ///< of 64 groups
  };

  static constexpr std::size_t never = ~std::size_t{0};

  huge_vector<sums> by_distance_;
  std::uint64_t blocks_ = 0;
  std::uint64_t tokens_ = 0;
  std::uint32_t distinct_ = 0;
  recency used_;
  huge_vector<std::size_t> last_;  ///< of each block: its position
  std::size_t next_ = 0;
};

}  // namespace cenote::simulation
