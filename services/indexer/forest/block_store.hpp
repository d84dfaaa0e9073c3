// The memory of blocks: two arrays by block number, in extents that never move, and the runs that own them.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "services/indexer/forest/chunked_array.hpp"
#include "services/indexer/forest/holder_sets.hpp"

namespace cenote::indexer {

/// Number of a block; the same as long as the index knows the block.
using block_number = std::uint32_t;
/// Publishers whose hashes agree; below no_domain.
using name_domain = std::uint16_t;
constexpr block_number no_block = 0xffff'ffff;
constexpr name_domain no_domain = 0xffff;
constexpr std::uint32_t no_run = 0xffff'ffff;

/// Blocks from the last span's end to this one have the same holders.
struct holder_span {
  std::uint32_t end = 0;
  set_number set = 0;
};

/// The spans of a run in one word, so that readers see all or none of a change:
///   0 in the upper 16 bits: one span, [end 16 | set 32]; else their number, and the address of as many spans.
/// Behind the last one are blocks without holders.
class span_word {
 public:
  span_word() = default;
  explicit span_word(std::uint64_t word) noexcept : word_(word) {}
  [[nodiscard]] static span_word single(holder_span one) noexcept {
    return span_word((std::uint64_t{one.end} << 32) | one.set);
  }
  [[nodiscard]] static span_word array(const holder_span* spans, std::size_t count) noexcept {
    return span_word((std::uint64_t{count} << 48) | reinterpret_cast<std::uintptr_t>(spans));
  }

  /// The spans; `one` holds a single one.
  [[nodiscard]] std::span<const holder_span> spans(holder_span& one) const noexcept {
    const std::size_t count = word_ >> 48;
    if (count > 0) return {reinterpret_cast<const holder_span*>(word_ & 0xffff'ffff'ffffU), count};
    one = {static_cast<std::uint32_t>(word_ >> 32), static_cast<set_number>(word_)};
    return {&one, one.end > 0 ? std::size_t{1} : 0};
  }
  [[nodiscard]] holder_span* memory() const noexcept {
    return word_ >> 48 == 0 ? nullptr : reinterpret_cast<holder_span*>(word_ & 0xffff'ffff'ffffU);
  }
  [[nodiscard]] std::size_t bytes() const noexcept { return (word_ >> 48) * sizeof(holder_span); }
  [[nodiscard]] bool is_empty() const noexcept { return word_ == 0; }
  [[nodiscard]] std::uint64_t word() const noexcept { return word_; }

 private:
  std::uint64_t word_ = 0;
};

/// Consecutive blocks of one chain: what readers look at.
struct block_run {
  std::uint64_t key = 0;                    ///< of the first block
  std::atomic<std::uint64_t> spans{0};      ///< span_word; readers compare keys up to its end
  std::uint32_t base = 0;                   ///< number of the first block
  std::atomic<std::uint32_t> last_use{0};   ///< coarse time
  std::atomic<std::uint32_t> next{no_run};  ///< the run that went on behind the last block, a hint
  std::uint16_t length = 0;                 ///< blocks, the writer's
  name_domain domain = no_domain;           ///< of the hashes, the writer's
};
static_assert(sizeof(block_run) == 32);

/// The writer's part of a run.
struct run_record {
  block_number parent = no_block;
  std::uint32_t children = 0;
  std::uint32_t birth = 0;     ///< 0: the number is free
  std::uint16_t capacity = 0;  ///< blocks, whole eights
  bool is_queued = false;      ///< its blocks without holders wait to be wanted
  bool is_shortened = false;   ///< numbers behind its end named other blocks: it grows no more
};

/// Blocks and runs; one writer. Readers use keys() of what was published to them.
class block_store {
 public:
  static constexpr std::uint32_t most_run = 512;  ///< blocks
  static constexpr std::uint32_t granule = 8;     ///< blocks with one owner

  /// Rounds up to a multiple of `granule`.
  [[nodiscard]] static constexpr std::uint32_t whole_granules(std::uint32_t blocks) noexcept {
    return (blocks + granule - 1) / granule * granule;
  }

  struct block_extent {
    block_number base = no_block;
    std::uint32_t capacity = 0;
  };

  /// Throws std::bad_alloc.
  explicit block_store(index_budget& budget);

  /// An extent of at most `wanted` blocks rounded up to eights, a smaller one if there is no other; none: memory is
  /// out.
  [[nodiscard]] std::optional<block_extent> allocate(std::uint32_t request) noexcept;
  /// Adds blocks behind an extent if none was allocated there: how many.
  [[nodiscard]] std::uint32_t extend(block_extent present, std::uint32_t request) noexcept;
  void release(block_extent unused) noexcept;

  /// A number for a run; none: memory is out.
  [[nodiscard]] std::optional<std::uint32_t> add_run() noexcept;
  void reuse_run(std::uint32_t number) noexcept;

  void set_owner(block_extent owned, std::uint32_t run) noexcept {
    for (std::uint32_t at = 0; at < owned.capacity; at += granule) owners_[(owned.base + at) / granule] = run;
  }

  [[nodiscard]] std::uint64_t* keys(block_number block) const noexcept { return &keys_[block]; }
  [[nodiscard]] std::uint64_t* hashes(block_number block) const noexcept { return &hashes_[block]; }
  [[nodiscard]] std::uint32_t owner(block_number block) const noexcept { return owners_[block / granule]; }
  [[nodiscard]] const std::uint32_t* owner_address(block_number block) const noexcept {
    return &owners_[block / granule];
  }
  [[nodiscard]] block_run& run(std::uint32_t number) const noexcept { return runs_[number]; }
  [[nodiscard]] run_record& record(std::uint32_t number) const noexcept { return records_[number]; }
  /// The run of a block; no_run if the index does not know it.
  [[nodiscard]] std::uint32_t run_of(block_number block) const noexcept;

  [[nodiscard]] std::uint32_t run_bound() const noexcept { return run_bound_; }
  [[nodiscard]] std::size_t most_blocks() const noexcept { return most_blocks_; }
  [[nodiscard]] std::size_t most_runs() const noexcept { return most_blocks_ / granule; }
  /// Blocks for which there is memory, and those in no extent.
  [[nodiscard]] std::size_t capacity() const noexcept { return keys_.capacity(); }
  [[nodiscard]] std::size_t unused() const noexcept { return unused_ + (top_end_ - top_); }

 private:
  static constexpr std::size_t classes = most_run / granule;

  void push(block_extent unused) noexcept;
  [[nodiscard]] std::optional<block_extent> pop(std::uint32_t request) noexcept;
  [[nodiscard]] bool add_chunk() noexcept;

  index_budget& budget_;
  std::size_t most_blocks_;
  chunked_array<std::uint64_t> keys_;
  chunked_array<std::uint64_t> hashes_;
  chunked_array<std::uint32_t> owners_;
  chunked_array<block_run> runs_;
  chunked_array<run_record> records_;
  block_number top_ = 0;  ///< blocks from here to top_end_ were never used
  block_number top_end_ = 0;
  std::size_t unused_ = 0;
  std::uint64_t free_classes_ = 0;                    ///< bit i: there is an extent of i + 1 granules
  std::array<block_number, classes> free_extents_{};  ///< the first of each size; each names the next in its first key
  std::uint32_t run_bound_ = 0;
  std::uint32_t free_runs_ = no_run;
  std::uint32_t births_ = 0;
};

}  // namespace cenote::indexer
