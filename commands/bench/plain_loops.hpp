// Limits: the same work on the same data in loops that know nothing of nodes, sessions or other processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/block_key.hpp"
#include "core/error.hpp"
#include "memory/block_record.hpp"

namespace cenote::bench {

/// Line ends of a file, read through a buffer of 256 KiB. Errors: system.
[[nodiscard]] result<std::uint64_t> count_lines(const std::string& path);

/// Identities of `ids` that came before, counted in one pass with a hash table: open addressing, at most half full with
/// `distinct` identities, which must not be fewer than there are.
[[nodiscard]] std::uint64_t count_repeats(std::span<const std::uint64_t> ids, std::size_t distinct);

struct record_counts {
  std::uint64_t present = 0;
  std::uint64_t damaged = 0;  ///< present, with a key of no possible size
  std::uint64_t keys = 0;     ///< all reduced keys, mixed: without it none would be computed
};

/// Reads each of the first `count` records and reduces its key, as a restart must.
[[nodiscard]] record_counts check_records(const memory::record_table& records, std::uint32_t count);

/// A hash table within one process that counts holders of each key: what pinning would be without other processes.
/// Thread-safe once all keys are added.
class counted_keys {
 public:
  /// Adds `keys` of group 0.
  explicit counted_keys(key_batch keys);

  /// Counts a holder of each key of the longest prefix that is there, full keys compared; the length of the prefix.
  /// `references` has room for all keys.
  [[nodiscard]] std::size_t hold(key_batch keys, std::span<std::atomic<std::uint32_t>*> references);
  static void release(std::span<std::atomic<std::uint32_t>* const> references) noexcept;
  [[nodiscard]] std::uint32_t holders(std::span<const std::byte> key) const;

 private:
  struct counted_key {
    full_key key;
    std::atomic<std::uint32_t> holders{0};
  };

  std::unordered_map<block_key, counted_key, block_key_hash> entries_;
};

}  // namespace cenote::bench
