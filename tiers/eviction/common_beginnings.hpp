// Where requests that have only a popular beginning in common go separate ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// Finds how much of a request is a beginning that many others share, as a system prompt is, and where its own part
/// begins: the block by which a sample knows its conversation, as it is the same for all of its turns.
///
/// A block is common when, of the latest one to two thousand requests, eight came through it without going on from the
/// one that came through before: turns of one conversation go on from each other, however many they are. Bounded: about
/// 60 bytes for each of at most 8,192 blocks. A few look-ups a request. Not thread-safe.
class common_beginnings {
 public:
  /// How many leading blocks of `of` are common; the last block never is. Counts the request.
  [[nodiscard]] std::size_t length(const request& of);
  [[nodiscard]] std::size_t size() const noexcept { return seen_.size(); }

 private:
  /// What came through a block.
  struct passage {
    std::uint64_t tip = 0;    ///< the last full block of the latest request
    std::uint32_t depth = 0;  ///< its place in that request
    std::uint32_t partings = 0;
    bool common = false;
  };

  [[nodiscard]] bool passes(const request& of, std::size_t at);
  void age();

  std::unordered_map<std::uint64_t, passage> seen_;
  std::uint32_t requests_ = 0;
};

}  // namespace cenote::eviction
