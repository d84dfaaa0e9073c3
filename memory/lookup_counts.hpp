// Counts of a session's lookups, kept by its client in the memory that it shares with the node.
#pragma once

#include <atomic>
#include <cstdint>

namespace cenote::memory {

/// Keys of lookups, by the calls that made them. Asking and reading are counted apart: an engine that asks and then
/// reads what is there looks up its hits twice.
struct lookup_counts {
  std::uint64_t match_keys = 0;      ///< of calls that ask what is there
  std::uint64_t match_resident = 0;  ///< of those, in DRAM, or on the session's device
  std::uint64_t match_lower = 0;     ///< of those, in tiers below alone: by hints, or as the node located them
  std::uint64_t read_keys = 0;       ///< of calls that pin or copy blocks
  std::uint64_t read_resident = 0;

  bool operator==(const lookup_counts&) const = default;
};

/// The same in shared memory, a cache line of a session's header. Its client alone adds to it, from any of its threads;
/// one that does not count leaves zeros.
struct lookup_words {
  std::atomic<std::uint64_t> match_keys;
  std::atomic<std::uint64_t> match_resident;
  std::atomic<std::uint64_t> match_lower;
  std::atomic<std::uint64_t> read_keys;
  std::atomic<std::uint64_t> read_resident;

  void add_match(std::uint64_t keys, std::uint64_t resident) noexcept {
    match_keys.fetch_add(keys, std::memory_order_relaxed);
    match_resident.fetch_add(resident, std::memory_order_relaxed);
  }
  /// Most nodes have nothing there, so that this is no third write of a lookup.
  void add_lower(std::uint64_t keys) noexcept {
    if (keys != 0) match_lower.fetch_add(keys, std::memory_order_relaxed);
  }
  void add_read(std::uint64_t keys, std::uint64_t resident) noexcept {
    read_keys.fetch_add(keys, std::memory_order_relaxed);
    read_resident.fetch_add(resident, std::memory_order_relaxed);
  }
  /// Each word once. Words of a hostile client make no sense together, nor with those of an earlier look.
  [[nodiscard]] lookup_counts load() const noexcept {
    return {.match_keys = match_keys.load(std::memory_order_relaxed),
            .match_resident = match_resident.load(std::memory_order_relaxed),
            .match_lower = match_lower.load(std::memory_order_relaxed),
            .read_keys = read_keys.load(std::memory_order_relaxed),
            .read_resident = read_resident.load(std::memory_order_relaxed)};
  }
};
static_assert(sizeof(lookup_words) <= 64);

}  // namespace cenote::memory
