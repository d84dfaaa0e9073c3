// Requests for blocks, on their way from a store to estimates, and the form of these.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace cenote::blocks {

/// A request for blocks of an instance's first pool.
struct watched_request {
  std::uint32_t instance = 0;  ///< its number
  std::uint64_t room = 0;      ///< blocks that the pool would have room for without others; 0: for a recording alone
  std::vector<std::uint64_t> ids;  ///< identities of its blocks, head first, whether they are there or not
  std::uint32_t block_tokens = 0;  ///< of the instance's spec; 0: it names none
  bool is_cut = false;  ///< so many blocks were not there that only the first ones of them and the last are named
};

/// Those that were not handed on yet. Not thread-safe.
class watched_requests {
 public:
  void add(watched_request one) {
    blocks_ += one.ids.size();
    requests_.push_back(std::move(one));
  }
  [[nodiscard]] std::uint64_t blocks() const noexcept { return blocks_; }
  [[nodiscard]] std::vector<watched_request> take() {
    blocks_ = 0;
    return std::exchange(requests_, {});
  }

 private:
  std::vector<watched_request> requests_;
  std::uint64_t blocks_ = 0;  ///< of all of them
};

struct curve_point {
  std::uint64_t capacity = 0;  ///< blocks
  double miss_ratio = 0;       ///< of all blocks that were asked for
  double error = 0;            ///< standard error of the ratio
};

/// The smallest capacity with a share of the hits that are within reach.
struct share_point {
  double share = 0;            ///< of the hits of the largest capacity that is known
  std::uint64_t capacity = 0;  ///< blocks
};

/// The hits that more of a tier would bring.
struct curve_gain {
  std::string tier;
  double hit_ratio = 0;  ///< more, of all blocks that were asked for, by a GiB
  double error = 0;      ///< standard error of it
};

/// Of an instance whose requests are watched.
struct curve_status {
  std::uint32_t instance = 0;  ///< its number
  std::uint64_t requests = 0;
  std::uint64_t capacity = 0;     ///< blocks that the pool has room for now
  std::uint64_t block_bytes = 0;  ///< that a block takes
  std::vector<curve_point> points;
  std::vector<share_point> shares{};  ///< those of which a capacity is known
  std::vector<curve_gain> gains{};    ///< of the tiers of which one is known, the nearest first
};

/// Instances of a store that are watched, at most.
inline constexpr std::size_t most_watched = 16;

}  // namespace cenote::blocks
