// The record of every block of the node, in a segment that no client ever gets: what a restart derives all else from.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>

#include "core/block_key.hpp"
#include "core/time_types.hpp"
#include "memory/crash_guard.hpp"
#include "memory/segment.hpp"
#include "memory/store_point.hpp"

namespace cenote::memory {

/// A block's life. Numbers are part of the layout.
///
///   free ──> granted ──commit──> present ──condemn──> free
///    │          └──revoke──> quarantined ──> free      └──pinned──> zombie ──> free
///    └──> pending (key bound, parts missing) ──last commit──> present
enum class block_state : std::uint8_t {
  free = 0,
  granted = 1,      ///< blank, in the hands of session `owner`
  pending = 2,      ///< reserved for a key; `writers` says who may be writing
  present = 3,      ///< published under its key
  quarantined = 4,  ///< the key is free again, `writers` may still be writing
  zombie = 5,       ///< the key is gone, a pin may still be held
  loading = 6,      ///< a lower tier's read is under way (set before the read is submitted)
};

/// One block; 112 bytes. A single store of `word` publishes it: index and version table are derived from the records
/// and rebuilt when a worker starts.
///
///   0      8                  16      24          32     36     40             44        45     46    48      112
///   | word | checksum/writers | parts | source    | owner| touch| grant version| key size| flags| hits| key … |
struct block_record {
  std::atomic<std::uint64_t> word;  ///< version (60 bits) | block_state (4 bits)
  std::atomic<std::uint64_t>
      checksum_or_writers;           ///< present: XXH3-64 when flag_checksum; else a mask of session slots
  std::atomic<std::uint64_t> parts;  ///< mask of the parts that were written
  /// loading: the number of the lower tier that fills the memory; present: when it came, a boot_time
  std::atomic<std::uint64_t> source;
  std::atomic<std::uint32_t> owner;          ///< of a grant: low half of the session's number, which no other has
  std::atomic<std::uint32_t> touch;          ///< last use: a boot_time
  std::atomic<std::uint32_t> grant_version;  ///< counts hand-outs; a commit must name the present one
  std::uint8_t key_size;
  std::uint8_t flags;
  std::atomic<std::uint16_t> hits;
  std::uint8_t key[max_key_bytes];

  static constexpr std::uint8_t flag_checksum = 1;
  /// The first of the tiers below has a copy; a hint, forgotten at a restart. Those of the others: see flag_of().
  static constexpr std::uint8_t flag_below = 2;
  static constexpr std::uint8_t flag_kept = 8;  ///< stays until it is removed or kept no more; outlives a worker
  /// Among the oldest blocks, with a copy below, so that it is evicted first; forgotten at a restart.
  static constexpr std::uint8_t flag_written_back = 4;
  static constexpr std::uint8_t flags_below = flag_below | 16 | 32 | 64;  ///< some tier below has a copy
  /// Tier `edge` below has a copy: at most four are below.
  [[nodiscard]] static constexpr std::uint8_t flag_of(std::uint32_t edge) noexcept {
    return edge == 0 ? flag_below : static_cast<std::uint8_t>(8U << edge);
  }

  /// When a present block came. Of one that an earlier build published, soon after the machine's start.
  [[nodiscard]] boot_time arrival() const noexcept {
    return boot_time_of(static_cast<std::uint32_t>(source.load(std::memory_order_relaxed)));
  }
  [[nodiscard]] boot_time last_use() const noexcept { return boot_time_of(touch.load(std::memory_order_relaxed)); }
  [[nodiscard]] block_state state() const noexcept {
    return static_cast<block_state>(word.load(std::memory_order_acquire) & 15U);
  }
  /// The version under which the block was last published.
  [[nodiscard]] std::uint64_t version() const noexcept { return word.load(std::memory_order_acquire) >> 4; }
  void set(block_state state, std::uint64_t version, store_point point = no_point) noexcept {
    shared_store(word, (version << 4) | static_cast<std::uint64_t>(state), std::memory_order_release, point);
  }
  void set_state(block_state state, store_point point = no_point) noexcept { set(state, version(), point); }
  void set_key(const full_key& full) noexcept {
    shared_assign(key_size, full.size, "record.key_size"_point);
    shared_bytes(key, full.bytes.data(), sizeof key, "record.key"_point);
  }
  /// XXH3-64 of the bytes of a present block, if one was taken. Any thread, of a block that is pinned.
  [[nodiscard]] std::optional<std::uint64_t> checksum() const noexcept {
    const std::uint8_t now = std::atomic_ref(const_cast<std::uint8_t&>(flags)).load(std::memory_order_relaxed);
    if ((now & flag_checksum) == 0) return std::nullopt;
    return checksum_or_writers.load(std::memory_order_relaxed);
  }
  [[nodiscard]] full_key get_key() const noexcept {
    full_key full;
    full.size = key_size <= max_key_bytes ? key_size : std::uint8_t{0};
    std::memcpy(full.bytes.data(), key, sizeof key);
    return full;
  }
};
static_assert(sizeof(block_record) == 112);

/// Where a slab's blocks and their records are in this process: good while one of the blocks is pinned or reserved.
struct slab_place {
  std::uint32_t index = 0;
  std::uint32_t count = 0;
  std::uint64_t stride = 0;
  std::byte* memory = nullptr;
  const block_record* records = nullptr;
};

inline constexpr std::uint32_t max_records = 1U << 28;  ///< blocks of a node, all instances

/// All records of a node: one sparse segment, slabs own ranges of it. The owner's thread only.
class record_table {
 public:
  static constexpr std::uint64_t segment_bytes =
      (page_bytes + std::uint64_t{max_records} * sizeof(block_record) + page_bytes - 1) / page_bytes * page_bytes;

  static result<record_table> create();
  static result<record_table> open(unique_fd fd);

  [[nodiscard]] block_record& operator[](std::uint32_t record) const noexcept {
    return reinterpret_cast<block_record*>(memory_.data() + page_bytes)[record];
  }
  [[nodiscard]] const segment& memory() const noexcept { return memory_; }
  /// Greater than every number given to note_instance(); outlives a worker.
  [[nodiscard]] std::uint32_t next_instance() const noexcept;
  void note_instance(std::uint32_t number) const noexcept;
  /// The part of the first page that counts workers' deaths by session.
  [[nodiscard]] crash_guard guard() const noexcept { return crash_guard(memory_.data()); }

 private:
  explicit record_table(segment memory) noexcept : memory_(std::move(memory)) {}
  segment memory_;
};

/// Hands out consecutive numbers [first, first+count): records of the node, version entries of an instance.
/// First fit over the holes, then at the end. The owner's thread only.
class range_allocator {
 public:
  explicit range_allocator(std::uint32_t limit) noexcept : limit_(limit) {}
  [[nodiscard]] std::optional<std::uint32_t> allocate(std::uint32_t count);
  void release(std::uint32_t first, std::uint32_t count);
  /// Takes a given range out, at a restart. False when part of it is taken already.
  bool claim(std::uint32_t first, std::uint32_t count);

 private:
  std::uint32_t limit_;
  std::uint32_t end_ = 0;                         ///< everything from here on is unused
  std::map<std::uint32_t, std::uint32_t> holes_;  ///< first -> count, below end_
};

}  // namespace cenote::memory
