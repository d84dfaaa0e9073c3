// Chains of blocks that are gathered from ring entries for the eviction policies.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tiers/blocks/open_chains.hpp"

namespace cenote::blocks {

struct pool;

/// A chain as a session uses it, gathered from several ring entries.
struct used_chain {
  pool* group = nullptr;  ///< null: between two chains
  std::uint32_t request = 0;
  bool sound = true;                 ///< all entries named one group
  std::vector<chain_block> blocks;   ///< head to tail
  std::vector<std::uint64_t> asked;  ///< what the session asked for behind them
  std::uint64_t looked = 0;          ///< blocks that were named, here or not
  bool begun = false;  ///< begin_request() was called; `left` blocks from the head are still to be touched
  std::size_t left = 0;
  std::uint32_t request_context = 0;

  void clear() noexcept {
    group = nullptr;
    sound = true;
    begun = false;
    looked = left = request_context = 0;
    blocks.clear();
    asked.clear();
    if (blocks.capacity() > most_spare) blocks = {};  // a session keeps little for its next chain
  }
  static constexpr std::size_t most_spare = 4096;
};

/// Blocks that a request stored and that are in no policy yet, head to tail.
struct stored_chain {
  pool* group = nullptr;
  std::uint64_t first = 0, last = 0;  ///< identities, also of blocks that were there already
  std::uint64_t parent = 0;           ///< of the block before them, if the session said so
  std::vector<chain_block> blocks;
  std::vector<std::uint64_t> ids;  ///< of the blocks, where anything wants the request

  void clear() noexcept {
    group = nullptr;
    first = last = parent = 0;
    blocks.clear();
    ids.clear();
  }
};

}  // namespace cenote::blocks
