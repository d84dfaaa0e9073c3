// Which keys a lower tier of the node holds: a hint that every client reads without a lock.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "core/block_key.hpp"
#include "memory/index.hpp"

namespace cenote::memory {

// Behind the index, in the same segment:
//
//   index_area_bytes       +4096
//   | buckets | unused     | bucket 0 | bucket 1 | …
//
// A bucket is a cache line: 15 tags (the high bits of a key's low word, never 0), and in its first word the number of
// keys whose home bucket this is but that overflowed into a later one. A reader goes on to the next bucket while that
// is not 0. With 32-bit tags about one absent key in a hundred million is taken for a present one, which costs a load
// that finds nothing; a key that is being moved may be missed, which costs a load that is not made.

struct hint_bucket {
  std::atomic<std::uint32_t> elsewhere;
  std::atomic<std::uint32_t> tags[15];
};
static_assert(sizeof(hint_bucket) == 64);

namespace hints {

inline constexpr file_part area{index_area_bytes, index_segment_bytes - index_area_bytes};
inline constexpr std::uint64_t first_bucket = page_bytes;  ///< from the area's beginning on
inline constexpr std::uint64_t max_buckets = (area.bytes - first_bucket) / sizeof(hint_bucket);
inline constexpr std::uint64_t max_probes = 8;  ///< buckets from home on
inline constexpr double load = 0.75;            ///< of the tags, when the tier is full

inline std::uint32_t tag_of(const block_key& key) noexcept {
  const auto tag = static_cast<std::uint32_t>(key.lo >> 32);
  return tag != 0 ? tag : 1;
}

/// Buckets for `keys` keys.
[[nodiscard]] std::uint64_t buckets_for(std::uint64_t keys) noexcept;

}  // namespace hints

/// Reading half. Copyable view; any number of threads; never spins.
class hint_reader {
 public:
  hint_reader() noexcept = default;
  /// `hints`: of an index_memory; it outlives the reader and stays where it is.
  explicit hint_reader(const window& hints) noexcept : hints_(&hints) {}

  /// True when there is no lower tier.
  [[nodiscard]] bool none() const noexcept;
  /// True when a lower tier probably holds the key.
  [[nodiscard]] bool contains(const block_key& key) const noexcept;

 private:
  const window* hints_ = nullptr;
};

/// Writing half: one thread of one process. What it writes are hints alone, made anew by each worker.
class hint_writer {
 public:
  hint_writer() noexcept = default;
  /// Takes the index segment over and empties the hints. `keys`: what there must be room for. Errors: system.
  static result<hint_writer> open(shared_file file, std::uint64_t keys);

  /// Adds a key; without room (its home bucket and those behind it are full, max_probes in all) readers do not see it.
  void add(const block_key& key) noexcept;
  /// Removes a key that was added before.
  void erase(const block_key& key) noexcept;
  void clear() noexcept;

 private:
  [[nodiscard]] hint_bucket& bucket(std::uint64_t number) const noexcept;

  shared_file file_;
  window memory_;
  std::uint64_t buckets_ = 0;
};

}  // namespace cenote::memory
