// Requests whose beginning was read, and whose rest may still be stored.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <ranges>
#include <vector>

namespace cenote::blocks {

/// A block as it was when a request used it: its record is another block's when the version has changed.
struct chain_block {
  std::uint32_t record = 0;
  std::uint64_t version = 0;
};

/// What a session asked for lately, so that blocks that it stores later join the chain that they continue. Bounded: the
/// oldest requests are forgotten. Blocks are named by the identities that the eviction policies know. Not thread-safe.
class open_chains {
 public:
  struct chain {
    std::vector<std::uint64_t> asked;   ///< identities of the blocks that were asked for and missing, head to tail
    std::uint64_t last = 0;             ///< … of the last block that was stored; 0: none yet
    std::uint32_t request_context = 0;  ///< what the policy said when the request began
    bool is_cut = false;                ///< a block of it was refused: what a later put brings serves no prefix
    std::vector<chain_block> blocks;    ///< head to tail, as far as they are here
  };
  static constexpr std::size_t most_chains = 64;
  static constexpr std::size_t most_blocks = 16'384;  ///< here and missing, of all chains but the latest one

  /// The latest chain that asked for the block `first`, or ends with `parent`. Null: none.
  [[nodiscard]] chain* find(std::uint64_t first, std::uint64_t parent) noexcept {
    for (chain& each : std::views::reverse(chains_)) {
      if (parent != 0 && each.last == parent) return &each;
      if (std::ranges::find(each.asked, first) != each.asked.end()) return &each;
    }
    return nullptr;
  }
  void add(chain made) {
    blocks_ += made.blocks.size() + made.asked.size();
    chains_.push_back(std::move(made));
    trim();
  }
  /// Blocks of all chains, here and missing.
  [[nodiscard]] std::size_t size() const noexcept { return blocks_; }
  /// The one that was added last.
  [[nodiscard]] chain& latest() noexcept { return chains_.back(); }
  /// `to` has grown by blocks of its own, up to the one called `last`.
  void grow(chain& to, const std::vector<chain_block>& blocks, std::uint64_t last) {
    const auto end = std::ranges::find(to.asked, last);
    if (end != to.asked.end()) {
      blocks_ -= static_cast<std::size_t>(end + 1 - to.asked.begin());
      to.asked.erase(to.asked.begin(), end + 1);
    }
    to.last = last;
    to.blocks.insert(to.blocks.end(), blocks.begin(), blocks.end());
    blocks_ += blocks.size();
    trim();
  }

 private:
  void trim() {
    while (chains_.size() > most_chains || (blocks_ > most_blocks && chains_.size() > 1)) {
      blocks_ -= chains_.front().blocks.size() + chains_.front().asked.size();
      chains_.pop_front();
    }
  }

  std::deque<chain> chains_;  ///< the oldest first
  std::size_t blocks_ = 0;
};

}  // namespace cenote::blocks
