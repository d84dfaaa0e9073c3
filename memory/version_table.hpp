// Versions and full keys of an instance's blocks: by them a reader checks what the index gave it (a seqlock a block).
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>

#include "core/block_key.hpp"
#include "core/time_types.hpp"
#include "memory/segment.hpp"
#include "memory/store_point.hpp"
#include "memory/window.hpp"

namespace cenote::memory {

// The segment (sparse; clients map it read-only):
//
//   0          4096            hot            cold             directory
//   | header … | version_entry | …  | key_tail | …  | slab_entry, by slab index |
//
// A slab owns `count` consecutive entries from its `first_version` on.

/// One block: a seqlock. Even: published; odd: not readable; 0: never used. Versions only grow, across restarts too.
struct version_entry {
  std::atomic<std::uint64_t> version;
  std::atomic<std::uint64_t> key_size;  ///< bytes
  std::atomic<std::uint64_t> key[6];    ///< the first 48 bytes of the full key
};
static_assert(sizeof(version_entry) == 64);

/// Bytes 48 to 63 of the full key; untouched memory while keys are shorter.
struct key_tail {
  std::atomic<std::uint64_t> key[2];
};

enum class slab_state : std::uint32_t { none = 0, live = 1, retired = 2 };

/// Where a slab's blocks are. Immutable once live; retired when the slab was given up.
struct slab_entry {
  std::uint32_t first_version = 0;
  std::uint32_t count = 0;   ///< blocks
  std::uint64_t stride = 0;  ///< bytes from block to block
  std::uint32_t group = 0;
  std::atomic<std::uint32_t> state;
};
static_assert(sizeof(slab_entry) == 24);

inline constexpr std::uint32_t max_version_entries = 1U << 28;  ///< an instance's live blocks

/// The segment, mapped as far as it is used (memory/window.hpp); the same class for the owner and for clients.
/// Move-only. Thread-safe but for moves. Entries must be mapped by reach() before they are read; they stay mapped as
/// long as the table lives.
class version_table {
 public:
  static constexpr std::uint64_t hot_offset = page_bytes;
  static constexpr std::uint64_t cold_offset = hot_offset + std::uint64_t{max_version_entries} * sizeof(version_entry);
  static constexpr std::uint64_t directory_offset = cold_offset + std::uint64_t{max_version_entries} * sizeof(key_tail);
  static constexpr std::uint64_t segment_bytes =
      (directory_offset + (std::uint64_t{1} << 22) * sizeof(slab_entry) + page_bytes - 1) / page_bytes * page_bytes;

  version_table() noexcept = default;
  /// Makes an empty table in a zeroed file of segment_bytes. Errors: system.
  static result<version_table> create(shared_file file);
  /// Opens a table that another process made. Errors: system, layout_mismatch.
  static result<version_table> open(shared_file file, access mode);

  /// The entry at `version_index`, which reach() has mapped.
  [[nodiscard]] version_entry& entry(std::uint32_t version_index) const noexcept {
    return reinterpret_cast<version_entry*>(hot_.base() + hot_offset)[version_index];
  }
  /// Maps entries [first, first + count) if they are not mapped yet. False: out of range, or no address space left.
  [[nodiscard]] bool reach(std::uint32_t first, std::uint32_t count) const noexcept {
    return hot_.reach(hot_offset + std::uint64_t{first} * sizeof(version_entry),
                      std::uint64_t{count} * sizeof(version_entry)) != nullptr;
  }
  /// The directory's entry of a slab, mapped. Null: out of range, or no address space left.
  [[nodiscard]] slab_entry* slab(std::uint32_t index) const noexcept {
    return reinterpret_cast<slab_entry*>(
        directory_.reach(std::uint64_t{index} * sizeof(slab_entry), sizeof(slab_entry)));
  }
  /// The parts that are mapped at one moment, for loops. They stay so; the rest has to be mapped with reach().
  struct mapped_part {
    const version_entry* entries = nullptr;
    std::uint64_t entry_count = 0;
    const slab_entry* slabs = nullptr;
    std::uint64_t slab_count = 0;
  };
  [[nodiscard]] mapped_part mapping() const noexcept {
    // The sizes first, as in reach().
    const std::uint64_t entry_count = (hot_.mapped() - hot_offset) / sizeof(version_entry);
    const std::uint64_t slab_count = directory_.mapped() / sizeof(slab_entry);
    return {reinterpret_cast<const version_entry*>(hot_.base() + hot_offset), entry_count,
            reinterpret_cast<const slab_entry*>(directory_.base()), slab_count};
  }
  [[nodiscard]] std::uint64_t version(std::uint32_t version_index) const noexcept {
    return entry(version_index).version.load(std::memory_order_acquire);
  }

  /// True when the entry's full key is `key`. Only valid while the block is pinned, or if the version is read again
  /// afterwards and has not changed.
  [[nodiscard]] bool key_equals(std::uint32_t version_index, std::span<const std::byte> key) const noexcept {
    return key_equals(entry(version_index), version_index, key);
  }
  /// The same; `hot` is the entry at `version_index`.
  [[nodiscard]] bool key_equals(const version_entry& hot, std::uint32_t version_index,
                                std::span<const std::byte> key) const noexcept {
    if (hot.key_size.load(std::memory_order_relaxed) != key.size()) return false;
    if (key.size() == 32) return difference<4>(hot, key) == 0;  // SHA-256
    if (key.size() == 16) return difference<2>(hot, key) == 0;  // a 128-bit hash
    return other_key_equals(version_index, key);
  }
  [[nodiscard]] full_key key(std::uint32_t version_index) const noexcept;

  // Owner only.
  [[nodiscard]] const shared_file& file() const noexcept { return file_; }
  /// Maps what the owner writes for a slab: place `index` of the directory, and `count` entries and key tails from
  /// `first` on. Errors: limit_exceeded.
  [[nodiscard]] result<void> make_room(std::uint32_t index, std::uint32_t first, std::uint32_t count) const;
  /// Faults in the pages of a slab's entries, ahead of a pass over them.
  void populate(std::uint32_t first, std::uint32_t count) const noexcept;
  /// When the instance's last session ended; 0: it has a session. Outlives a worker.
  [[nodiscard]] boot_time idle_since() const noexcept {
    return boot_time_of(static_cast<std::uint32_t>(header().spare[0]));
  }
  void set_idle_since(boot_time when) const noexcept;
  /// Marks the instance as given up: no worker takes it over any more.
  void retire() const noexcept;
  [[nodiscard]] bool is_retired() const noexcept { return header().retired.load(std::memory_order_acquire) != 0; }
  void set_key(std::uint32_t version_index, const full_key& key) const noexcept;
  void set_version(std::uint32_t version_index, std::uint64_t version, store_point point = no_point) const noexcept {
    shared_store(entry(version_index).version, version, std::memory_order_release, point);
  }
  [[nodiscard]] key_tail& tail(std::uint32_t version_index) const noexcept {
    return reinterpret_cast<key_tail*>(cold_.base())[version_index];
  }

 private:
  [[nodiscard]] segment_header& header() const noexcept { return *reinterpret_cast<segment_header*>(hot_.base()); }
  static result<version_table> map(shared_file file, access mode);
  [[nodiscard]] const key_tail* reach_tail(std::uint32_t version_index) const noexcept;

  template <std::size_t Words>
  [[nodiscard]] static std::uint64_t difference(const version_entry& hot, std::span<const std::byte> key) noexcept {
    std::array<std::uint64_t, Words> words;
    std::memcpy(words.data(), key.data(), sizeof words);
    return [&]<std::size_t... I>(std::index_sequence<I...>) {  // a loop would not be unrolled
      return ((hot.key[I].load(std::memory_order_relaxed) ^ words[I]) | ...);
    }(std::make_index_sequence<Words>{});
  }

  [[nodiscard]] bool other_key_equals(std::uint32_t version_index, std::span<const std::byte> key) const noexcept;

  shared_file file_;
  window hot_, cold_, directory_;
};

}  // namespace cenote::memory
