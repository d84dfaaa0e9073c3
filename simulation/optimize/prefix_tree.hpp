// The tree of all prefixes of a trace, with runs of blocks that nothing branches off from as one node.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "simulation/trace.hpp"

namespace cenote::simulation {

struct tree_shape {
  std::uint64_t nodes = 0;   ///< blocks
  std::uint64_t roots = 0;   ///< blocks that begin a chain
  std::uint64_t leaves = 0;  ///< blocks with nothing behind them
  std::uint64_t forks = 0;   ///< blocks with more than one behind them
  std::uint64_t depth = 0;   ///< blocks of the longest chain
};

/// Blocks in a row, each the only one behind the one in front of it.
struct tree_run {
  std::optional<std::uint32_t> parent;  ///< the run that it goes on
  std::uint64_t depth = 0;              ///< blocks in front of its first one
  std::uint64_t blocks = 0;
  std::uint64_t uses = 0;          ///< of its first block, by requests that ask
  std::uint64_t tokens_saved = 0;  ///< hit tokens of an endless cache in its blocks
  std::uint32_t instance = 0;      ///< that it first came from
};

/// Does not change once it is measured. Memory: that of the trace's distinct blocks.
class prefix_tree {
 public:
  /// Nothing where a block has come behind two different ones, so that chains are no prefixes. `hits` are those of
  /// endless_hits().
  [[nodiscard]] static std::optional<prefix_tree> measure(const trace& trace, std::span<const std::uint32_t> hits);

  [[nodiscard]] const tree_shape& shape() const noexcept { return shape_; }
  /// In the order in which they first came, so a parent is in front of all that goes on it.
  [[nodiscard]] std::span<const tree_run> runs() const noexcept { return runs_; }
  /// The numbers of the `limit` runs that save the most tokens, the best one first; of equals the first one.
  [[nodiscard]] std::vector<std::uint32_t> hottest(std::size_t limit) const;

 private:
  tree_shape shape_;
  std::vector<tree_run> runs_;
};

}  // namespace cenote::simulation
