// The instance's index: from block key to block, read by every client without a lock or a system call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/block_key.hpp"
#include "memory/block_ref.hpp"
#include "memory/fence.hpp"
#include "memory/segment.hpp"
#include "memory/store_point.hpp"
#include "memory/window.hpp"

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

inline constexpr std::uint64_t index_area_bytes = std::uint64_t{32} << 30;                         // sparse
inline constexpr std::uint64_t index_segment_bytes = index_area_bytes + (std::uint64_t{1} << 30);  // lower_hints.hpp
inline constexpr std::uint64_t index_min_slots = 1024;

/// What readers and the writer map of the segment, as far as it is used: the tables, and the hints behind them.
struct index_memory {
  /// Of a zeroed file. Errors: system.
  static result<index_memory> create(shared_file file);
  /// Of a file that somebody else made. Errors: system, layout_mismatch.
  static result<index_memory> open(shared_file file, access mode);

  [[nodiscard]] index_header& header() const noexcept { return *reinterpret_cast<index_header*>(tables.base()); }

  shared_file file;
  window tables;
  window hints;
};

/// Reading half. Copyable view of a window that outlives it and stays where it is; any number of threads. What a hit
/// needs is inline: a lookup has no time for calls. Tables for which there is no address space are not seen.
class index_reader {
 public:
  index_reader() noexcept = default;
  explicit index_reader(const window& tables) noexcept : tables_(&tables) {}

  /// A table as it was at one moment, which may be old by now: what glance() finds has to be checked by the block's
  /// version and full key, and what it does not find has to be looked for with find().
  struct table_view {
    const index_entry* entries = nullptr;
    std::uint64_t slots = 0;

    /// Where the key's probes begin; null if there is no table.
    [[nodiscard]] const index_entry* home(const block_key& key) const noexcept {
      return entries + home_slot(key, slots);
    }
    /// The place `n` places on; n is below the number of slots.
    [[nodiscard]] const index_entry* advance(const index_entry* first, std::uint64_t n) const noexcept {
      if (entries == nullptr) return nullptr;
      const auto slot = static_cast<std::uint64_t>(first - entries) + n;
      return entries + (slot < slots ? slot : slot - slots);
    }
    /// The result of find(key), if it lies in one of two places from `slot` on; else index_value::empty. Compares half
    /// of the key, so that the entry of another key is possible, if as good as never: the full key decides.
    [[nodiscard]] std::uint64_t glance(const index_entry* slot, const block_key& key) const noexcept {
      if (entries == nullptr) return index_value::empty;
      // Either is as likely, so a branch between them would be mispredicted half the time: they are chosen by masks.
      const index_entry* next = successor(slot);
      const std::uint64_t first = slot->value.load(std::memory_order_acquire);
      const std::uint64_t second = next->value.load(std::memory_order_acquire);
      const std::uint64_t is_first = mask_of(slot->lo.load(std::memory_order_relaxed) == key.lo);
      const std::uint64_t is_second = mask_of(next->lo.load(std::memory_order_relaxed) == key.lo);
      const std::uint64_t value = (first & is_first) | (second & is_second & ~is_first);
      return value & mask_of(index_value::holds_block(value));
    }
    /// The result of find(key), if it lies in one of `places` from `slot` on and none before it is empty; else
    /// index_value::empty.
    [[nodiscard]] std::uint64_t scan(const index_entry* slot, const block_key& key, int places) const noexcept {
      if (entries == nullptr) return index_value::empty;
      for (; places > 0; --places, slot = successor(slot)) {
        const std::uint64_t value = slot->value.load(std::memory_order_acquire);
        if (value == index_value::empty) break;
        if (difference(*slot, key) != 0) continue;
        load_fence();
        const bool same = slot->value.load(std::memory_order_acquire) == value;
        return same && index_value::holds_block(value) ? value : index_value::empty;
      }
      return index_value::empty;
    }

   private:
    [[nodiscard]] const index_entry* successor(const index_entry* slot) const noexcept {
      return slot + 1 == entries + slots ? entries : slot + 1;
    }
    [[nodiscard]] static std::uint64_t mask_of(bool holds) noexcept {
      return std::uint64_t{0} - static_cast<std::uint64_t>(holds);
    }
  };
  /// The table that most keys are in.
  [[nodiscard]] table_view newest() const noexcept {
    return table(header().state.load(std::memory_order_acquire) & 0xff);
  }

  /// Prefetches the first two slots of a probe sequence.
  static void prefetch(const index_entry* first) noexcept {
    __builtin_prefetch(first);
    __builtin_prefetch(&first[1].value);  // often in another line
  }

  /// The value under `key`, or index_value::empty. A hit is a hint until the block's version and full key agree.
  [[nodiscard]] std::uint64_t find(const block_key& key) const noexcept;

  /// Where a key's probes begin.
  [[nodiscard]] static std::uint64_t home_slot(const block_key& key, std::uint64_t slots) noexcept {
    __extension__ using wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<wide>(key.hi) * slots) >> 64);
  }

 private:
  [[nodiscard]] const index_header& header() const noexcept {
    return *reinterpret_cast<const index_header*>(tables_->base());
  }

  [[nodiscard]] table_view table(std::uint64_t number) const noexcept {
    if (number >= header().tables.size()) return {};
    const index_table& descriptor = header().tables[number];
    const std::uint64_t offset = descriptor.offset.load(std::memory_order_acquire);
    const std::uint64_t slots = descriptor.slots.load(std::memory_order_acquire);
    // A descriptor may be rewritten while we read it, after 64 growths: stay inside the segment whatever it says.
    if (slots == 0 || offset < page_bytes || slots > index_area_bytes / sizeof(index_entry) ||
        offset > index_area_bytes - slots * sizeof(index_entry)) {
      return {};
    }
    const std::byte* entries = tables_->reach(offset, slots * sizeof(index_entry));
    return {reinterpret_cast<const index_entry*>(entries), entries == nullptr ? 0 : slots};
  }

  [[nodiscard]] static std::uint64_t difference(const index_entry& entry, const block_key& key) noexcept {
    return (entry.lo.load(std::memory_order_relaxed) ^ key.lo) | (entry.hi.load(std::memory_order_relaxed) ^ key.hi);
  }

  [[nodiscard]] static std::uint64_t find_in(table_view table, const block_key& key) noexcept;

  const window* tables_ = nullptr;
};

/// An entry of an index, before it is checked.
struct index_claim {
  block_key key;
  std::uint64_t value = 0;  ///< index_value
};

/// Sets valid[i] to 1 when claims[i] is true, else to 0; at most index_writer::claims_at_once of them. Several threads
/// ask at the same time.
using claims_check = std::function<void(std::span<const index_claim> claims, std::span<std::uint8_t> valid)>;

/// Writing half; one thread of one process. Everything in the index can be rebuilt from the block records.
class index_writer {
 public:
  static constexpr std::size_t claims_at_once = 64;

  /// A fresh index in a zeroed segment.
  static result<index_writer> create(shared_file file);
  /// The index that a dead worker left; reconcile() must follow before it is used.
  static result<index_writer> open(shared_file file);

  /// Drops every entry that `check` does not confirm, finishes a migration that was under way, and recounts. Cost: one
  /// pass over the tables, on all processors.
  void reconcile(const claims_check& check);
  /// The same, entry by entry; `is_valid` is thread-safe all the same.
  void reconcile(const std::function<bool(const block_key&, std::uint64_t)>& is_valid);

  /// Adds or replaces. Fails only when the table is full and there is no address space for another (`limit_exceeded`).
  result<void> insert(const block_key& key, std::uint64_t value);
  /// Removes the key if it is there.
  void erase(const block_key& key);
  [[nodiscard]] std::uint64_t find(const block_key& key) const noexcept { return reader().find(key); }

  [[nodiscard]] std::uint64_t size() const noexcept { return current_.live + old_.live; }
  [[nodiscard]] std::uint64_t slots() const noexcept { return current_.slots + old_.slots; }
  [[nodiscard]] bool migrating() const noexcept { return old_.entries != nullptr; }
  /// Moves up to `steps` slots of a growth that is under way. To be called while nobody writes, as otherwise only
  /// writes move slots.
  void migrate(std::uint64_t steps);
  /// Good until the writer moves.
  [[nodiscard]] index_reader reader() const noexcept { return index_reader(memory_.tables); }
  [[nodiscard]] const window& hints() const noexcept { return memory_.hints; }
  [[nodiscard]] const shared_file& file() const noexcept { return memory_.file; }
  [[nodiscard]] const index_memory& memory() const noexcept { return memory_; }
  /// Gives the file to the caller; the writer must not be used afterwards.
  [[nodiscard]] shared_file release() && noexcept { return std::move(memory_.file); }

  /// Address space for whatever tables `n` entries need, so that inserting as many cannot fail. Errors: limit_exceeded.
  [[nodiscard]] result<void> make_room_for(std::uint64_t n) const;

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

  /// What a pass over some of a table's slots has counted, and the slots that are to be dropped.
  struct slot_report {
    std::uint64_t live = 0;
    std::uint64_t used = 0;
    std::vector<std::uint64_t> dropped_slots;
  };
  static slot_report check_slots(const table& from, std::uint64_t first, std::uint64_t end, const claims_check& check);

  explicit index_writer(index_memory memory) noexcept : memory_(std::move(memory)) {}
  [[nodiscard]] index_header& header() const noexcept { return memory_.header(); }
  result<void> start_table(std::uint64_t slots);
  result<void> make_room();
  void publish_state() noexcept;
  void finish_migration();
  static bool put_in(table& target, const block_key& key, std::uint64_t value) noexcept;
  static index_entry* locate(const table& table, const block_key& key) noexcept;
  static void erase_in(table& table, index_entry& entry) noexcept;
  table adopt(std::uint8_t number) const noexcept;

  index_memory memory_;
  table current_;
  table old_;
  std::uint64_t cursor_ = 0;  ///< next slot of the old table to move
  std::uint64_t generation_ = 0;
};

}  // namespace cenote::memory
