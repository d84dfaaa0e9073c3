// The instance's index: from block key to block, read by every client without a lock or a system call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>

#include "core/block_key.hpp"
#include "memory/block_ref.hpp"
#include "memory/segment.hpp"

namespace cenote::memory {

// The segment (sparse; clients map it read-only):
//
//   0        64      72        4096
//   | header | state | tables[] | … entries of the tables, wherever their offset says …
//
// Open addressing, linear probing, load at most 0.7. One writer; any number of readers, which never spin: an entry that
// changes under a reader is not the entry it looks for. While the index grows there are two tables: the writer moves a
// few entries with each operation, first into the new table, then out of the old one; readers look in the old, then in
// the new one, so that a moving key is never missed.

/// Three words; 16-byte atomics would crash on a read-only mapping.
struct index_entry {
  std::atomic<std::uint64_t> hi;
  std::atomic<std::uint64_t> lo;
  std::atomic<std::uint64_t> value;  ///< index_value
};
static_assert(sizeof(index_entry) == 24);

struct index_table {
  std::atomic<std::uint64_t> offset;  ///< bytes from the start of the segment
  std::atomic<std::uint64_t> slots;
};

struct index_header {
  segment_header segment;
  /// generation (48 bits) | old table (8) | current table (8); old == 0xff: none.
  std::atomic<std::uint64_t> state;
  std::array<index_table, 64> tables;
};

inline constexpr std::uint64_t index_segment_bytes = std::uint64_t{32} << 30;  // sparse
inline constexpr std::uint64_t index_min_slots = 1024;

/// Reading half. Copyable view; any number of threads.
class index_reader {
 public:
  index_reader() noexcept = default;
  explicit index_reader(const std::byte* base) noexcept : base_(base) {}

  /// Brings the key's cache line near.
  void prefetch(const block_key& key) const noexcept;
  /// The value under `key`, or index_value::empty. A hit is a hint until the block's version and full key agree.
  [[nodiscard]] std::uint64_t find(const block_key& key) const noexcept;

 private:
  struct table_view {
    const index_entry* entries = nullptr;
    std::uint64_t slots = 0;
  };
  [[nodiscard]] const index_header& header() const noexcept { return *reinterpret_cast<const index_header*>(base_); }
  [[nodiscard]] table_view table(std::uint64_t number) const noexcept;
  [[nodiscard]] static std::uint64_t find_in(table_view table, const block_key& key) noexcept;

  const std::byte* base_ = nullptr;
};

/// Writing half; one thread of one process. Holds no truth: everything in it can be rebuilt from the block records.
class index_writer {
 public:
  /// A fresh index in a zeroed segment.
  static result<index_writer> create(segment memory);
  /// The index that a dead worker left; reconcile() must follow before it is used.
  static result<index_writer> open(segment memory);

  /// Drops every entry for which `valid(key, value)` is false, finishes a migration that was under way, and recounts.
  /// Cost: one pass over the tables. `soon(value)` comes some entries ahead of valid(): time to prefetch what it reads.
  void reconcile(
      const std::function<bool(const block_key&, std::uint64_t)>& valid,
      const std::function<void(std::uint64_t)>& soon = [](std::uint64_t) {});

  /// Adds or replaces. Fails only when the segment's address space is used up (`limit_exceeded`).
  result<void> insert(const block_key& key, std::uint64_t value);
  /// Removes the key if it is there.
  void erase(const block_key& key);
  [[nodiscard]] std::uint64_t find(const block_key& key) const noexcept { return reader_.find(key); }

  [[nodiscard]] std::uint64_t size() const noexcept { return current_.live + old_.live; }
  [[nodiscard]] std::uint64_t slots() const noexcept { return current_.slots + old_.slots; }
  [[nodiscard]] bool migrating() const noexcept { return old_.entries != nullptr; }
  [[nodiscard]] const segment& memory() const noexcept { return memory_; }

  /// Grows at once so that `n` entries fit without another growth; for rebuilds and benches.
  result<void> reserve(std::uint64_t n);

 private:
  struct table {
    index_entry* entries = nullptr;
    std::uint64_t slots = 0;
    std::uint64_t live = 0;
    std::uint64_t used = 0;  ///< live and deleted
    std::uint64_t offset = 0;
    std::uint8_t number = 0xff;
  };

  explicit index_writer(segment memory) noexcept : memory_(std::move(memory)), reader_(memory_.data()) {}
  [[nodiscard]] index_header& header() const noexcept { return *reinterpret_cast<index_header*>(memory_.data()); }
  result<void> start_table(std::uint64_t slots);
  result<void> make_room();
  void publish_state() noexcept;
  void migrate(std::uint64_t steps);
  void finish_migration();
  static bool put_in(table& target, const block_key& key, std::uint64_t value) noexcept;
  static index_entry* locate(const table& in, const block_key& key) noexcept;
  static void erase_in(table& from, index_entry& entry) noexcept;
  table adopt(std::uint8_t number) const noexcept;

  segment memory_;
  index_reader reader_;
  table current_;
  table old_;
  std::uint64_t cursor_ = 0;  ///< next slot of the old table to move
  std::uint64_t generation_ = 0;
};

}  // namespace cenote::memory
