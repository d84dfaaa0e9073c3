// LRU that goes from the tail of a request to its head, for every capacity in one pass over the trace.
#pragma once

#include <cstdint>
#include <optional>

#include "core/huge_vector.hpp"

#include "simulation/trace.hpp"

namespace cenote::simulation {

/// The leading hits of LRU in the order `reverse`, equal to those of simulate() to the block at each capacity of at
/// least the longest request; below, a request evicts its own head, and what it finds follows no stack.
///
/// After a request its blocks are the upper part of LRU's stack, the head on top. A later request takes leading blocks,
/// so what is left to each past request is a run of its blocks that only loses its head. All blocks of a request that
/// were last used by the same past one form a piece: their stack distances are consecutive numbers, the first of them
/// the sum of what is left to younger requests. A Fenwick tree over the requests has these sums (stack distances after
/// R. L. Mattson et al., "Evaluation techniques for storage hierarchies", IBM Systems Journal 9(2), 1970; the tree: P.
/// M. Fenwick, "A new data structure for cumulative frequency tables", Software: Practice and Experience 24(3), 1994).
class interval_curve {
 public:
  struct hits {
    std::uint64_t blocks = 0;
    std::uint64_t tokens = 0;
  };

  /// Nothing where a block has come behind two different ones, so that chains are no prefixes, where a request does not
  /// store what it asks for, or where a request has a block twice.
  [[nodiscard]] static std::optional<interval_curve> measure(const trace& trace);

  /// The least capacity that hits_with() may be asked for.
  [[nodiscard]] std::uint32_t longest() const noexcept { return longest_; }
  /// Blocks; longest() or more.
  [[nodiscard]] hits hits_with(std::uint32_t capacity) const noexcept;

 private:
  interval_curve() = default;

  huge_vector<std::uint64_t> blocks_;         ///< hits by capacity, up to all distinct blocks
  huge_vector<std::uint64_t> absent_tokens_;  ///< of those, by capacity; empty: all blocks are full
  std::uint64_t block_tokens_ = 0;
  std::uint32_t longest_ = 0;
};

}  // namespace cenote::simulation
