// Checksums of the blocks of an extent, beside the index.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/manager/index/line_arena.hpp"

namespace cenote::manager {

/// Checksums of all blocks of an extent, position by position: one for each spec of `specs`, the lowest bit first.
struct block_checksums {
  std::uint64_t specs = 0;
  std::vector<std::uint64_t> values{};  ///< 0: none is known

  [[nodiscard]] bool empty() const noexcept { return values.empty(); }
  bool operator==(const block_checksums&) const = default;
};

/// The place of a spec's checksum among those of its block.
[[nodiscard]] constexpr std::size_t checksum_rank(std::uint64_t specs, std::size_t spec) noexcept {
  return static_cast<std::size_t>(std::popcount(specs & ((std::uint64_t{1} << spec) - 1)));
}

/// A run of memory with the checksums of one extent. Its first word is its size, which never changes, so that a reader
/// that comes too late stays within it; the second one its specs, then come the values.
using checksum_word = std::atomic<std::uint64_t>;

/// Runs in memory that lives as long as the arena, in sizes that double; those that were given back are used again. One
/// thread makes them and gives them back, any thread reads. All words are stored with release and loaded with acquire
/// order, so that record_reader's second look at the sequence finds a run that has another owner.
class checksum_runs {
 public:
  explicit checksum_runs(line_arena& arena) noexcept : arena_(arena) {}

  /// Throws std::bad_alloc.
  [[nodiscard]] checksum_word* make(const block_checksums& checksums);
  void release(checksum_word* run) noexcept;

  /// Any thread. Appends the specs and the checksums of the block at `position`; false: the run has another owner, or
  /// no such block.
  static bool append_block(const checksum_word* run, std::uint32_t position, std::vector<std::uint64_t>& out);
  /// The writer's: all of it, for an extent of so many blocks.
  [[nodiscard]] static block_checksums all(const checksum_word* run, std::size_t blocks);
  /// Beside those of the arena.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  static constexpr std::size_t head_words = 2;

  line_arena& arena_;
  std::array<std::vector<checksum_word*>, 32> unused_{};  ///< by the logarithm of their size
  std::array<std::uint32_t, 32> counts_{};                ///< likewise
};

}  // namespace cenote::manager
