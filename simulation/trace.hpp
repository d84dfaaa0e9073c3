// A recorded stream of requests, in the form that simulations read.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/huge_vector.hpp"

namespace cenote::simulation {

/// The use that a request makes of its chain.
enum class chain_access : std::uint8_t {
  both,   ///< asks for it, computes what is missing and stores that
  read,   ///< asks for it only
  write,  ///< stores it only: no part of the hits, nor of what they are a share of
};

/// Requests in the order in which they came. Each is a chain of blocks of the same number of tokens; equal identities
/// mean an equal prefix up to there. Blocks are numbered from 0 as they first come. Not thread-safe while it grows.
class trace {
 public:
  static constexpr std::uint64_t tokens_per_block = 512;  ///< of a trace that is made without a number
  static constexpr std::uint64_t most_ms = std::uint64_t{0xffff'ffff} * 100;  ///< tenths of a second in 32 bits

  struct entry {
    std::size_t first = 0;     ///< its first block in the stream
    std::size_t count = 0;     ///< blocks
    std::uint64_t tokens = 0;  ///< of the input
    std::uint64_t time_ms = 0;
    bool partial = false;  ///< the last block is not full
    chain_access access = chain_access::both;
    std::uint32_t instance = 0;
    std::uint32_t session = 0;
    std::uint32_t engine_blocks = 0;  ///< leading ones that the engine had itself

    /// The time of policies: tenths of a second.
    [[nodiscard]] std::uint32_t tenths() const noexcept { return static_cast<std::uint32_t>(time_ms / 100); }
  };

  struct arrival {
    std::uint64_t time_ms = 0;
    std::uint64_t tokens = 0;  ///< of the input
    std::size_t count = 0;     ///< ids
    chain_access access = chain_access::both;
    std::uint32_t instance = 0;  ///< instances share no block, so their ids differ
    std::uint32_t session = 0;
    std::uint32_t engine_blocks = 0;  ///< leading ones that the engine had itself
  };

  /// Requests whose blocks are numbered from 0 as they first come.
  struct numbered {
    std::vector<arrival> requests;          ///< in the order of their times
    huge_vector<std::uint32_t> blocks;      ///< of all requests, one after the other
    huge_vector<std::uint64_t> identities;  ///< of each number; no two are equal
    std::uint64_t block_tokens = tokens_per_block;
  };

  trace() = default;
  /// An empty one of blocks of `block_tokens` tokens, at least 1.
  explicit trace(std::uint64_t block_tokens) : block_tokens_(block_tokens) {}
  /// All of `requests`, in the order of their times; `ids` are theirs, one after the other.
  trace(std::span<const arrival> requests, const huge_vector<std::uint64_t>& ids,
        std::uint64_t block_tokens = tokens_per_block);
  /// All of `parts`, without looking for an identity.
  explicit trace(numbered parts);

  /// A request at `time_ms` of `tokens` input tokens; time that goes back is taken as standing still.
  void add(std::uint64_t time_ms, std::uint64_t tokens, std::span<const std::uint64_t> ids);
  /// All of a request but its ids, for another trace.
  [[nodiscard]] static arrival arrival_of(const entry& request) noexcept;
  /// The same with all that a request has; its `count` is that of `ids`.
  void add(const arrival& request, std::span<const std::uint64_t> ids);

  [[nodiscard]] std::uint64_t block_tokens() const noexcept { return block_tokens_; }

  [[nodiscard]] std::span<const entry> requests() const noexcept { return requests_; }
  [[nodiscard]] std::span<const std::uint32_t> blocks(const entry& request) const noexcept {
    return std::span(blocks_).subspan(request.first, request.count);
  }
  /// The identities of its blocks.
  [[nodiscard]] std::vector<std::uint64_t> ids(const entry& request) const;
  /// The numbers of all blocks of all requests, one after the other.
  [[nodiscard]] std::span<const std::uint32_t> stream() const noexcept { return blocks_; }
  /// The identity of each block number.
  [[nodiscard]] std::span<const std::uint64_t> identities() const noexcept { return identities_; }
  [[nodiscard]] std::uint32_t distinct() const noexcept { return static_cast<std::uint32_t>(identities_.size()); }
  /// Input tokens of the requests that ask, and their blocks.
  [[nodiscard]] std::uint64_t tokens() const noexcept { return tokens_; }
  [[nodiscard]] std::uint64_t asked_blocks() const noexcept { return asked_blocks_; }
  /// Whether each request stores what it asks for.
  [[nodiscard]] bool stores_all() const noexcept { return stores_all_; }
  /// Whether time passes from the first request to the last one, or there are fewer than two.
  [[nodiscard]] bool has_times() const noexcept {
    return requests_.size() < 2 || requests_.front().time_ms != requests_.back().time_ms;
  }

  /// The first `count` requests.
  [[nodiscard]] trace first(std::size_t count) const;
  /// The same as engines hand them over: in full blocks only. Their tokens stay.
  [[nodiscard]] trace full_blocks(std::size_t count) const;

  /// The same requests so many times as fast; 0: all at once.
  [[nodiscard]] trace at_speed(double factor) const;

  /// For each position of the stream the position at which its block comes next, or ~0: what Belady's policy reads.
  [[nodiscard]] std::vector<std::uint32_t> next_uses() const;

 private:
  std::vector<entry> requests_;
  huge_vector<std::uint32_t> blocks_;
  huge_vector<std::uint64_t> identities_;
  void add_entry(const arrival& request, std::size_t first);
  std::uint32_t number_of(std::uint64_t id);
  void place_all(std::size_t places);
  /// By identity, plus one; 0 is a free place. Open addressing, at most half full.
  huge_vector<std::uint32_t> numbers_;
  std::uint64_t tokens_ = 0;
  std::uint64_t asked_blocks_ = 0;
  std::uint64_t block_tokens_ = tokens_per_block;
  bool stores_all_ = true;
};

}  // namespace cenote::simulation
