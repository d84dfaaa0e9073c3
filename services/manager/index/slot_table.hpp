// Open addressing from hashes to record numbers: four bytes a slot, the key lies in the record.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/manager/index/line_arena.hpp"
#include "services/manager/index/lookup_answer.hpp"

namespace cenote::manager {

/// A slot has a record's number + 1 below, bits of the hash above, so that a slot of another key seldom costs a look at
/// its record. What readers need of the slots of a segment is one word.
struct segment_slots {
  static constexpr std::uint32_t vacant = 0;

  std::atomic<std::uint32_t>* slots = nullptr;  ///< on a cache line of their own
  unsigned bits = 0;                            ///< of the number of slots
  unsigned number_bits = 0;                     ///< of a slot, that hold a number

  [[nodiscard]] std::uint64_t pack() const noexcept {
    return reinterpret_cast<std::uintptr_t>(slots) | bits | std::uint64_t{number_bits} << number_shift;
  }
  [[nodiscard]] static segment_slots unpack(std::uint64_t word) noexcept {
    constexpr std::uint64_t address = ((std::uint64_t{1} << number_shift) - 1) & ~std::uint64_t{bits_mask};
    return {.slots = reinterpret_cast<std::atomic<std::uint32_t>*>(word & address),
            .bits = static_cast<unsigned>(word & bits_mask),
            .number_bits = static_cast<unsigned>(word >> number_shift)};
  }
  [[nodiscard]] std::size_t count() const noexcept { return std::size_t{1} << bits; }
  [[nodiscard]] std::size_t wrap() const noexcept { return count() - 1; }
  [[nodiscard]] std::uint32_t number_mask() const noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{1} << number_bits) - 1);
  }
  /// The first bits of a hash choose the segment, the last ones are in the slot.
  [[nodiscard]] std::size_t place(std::uint64_t hash) const noexcept {
    return static_cast<std::size_t>((hash << most_depth) >> (64 - bits));
  }
  [[nodiscard]] std::uint32_t slot(std::uint64_t hash, std::uint32_t record) const noexcept {
    return (static_cast<std::uint32_t>(hash) & ~number_mask()) | (record + 1);
  }
  [[nodiscard]] std::uint32_t record(std::uint32_t slot) const noexcept { return (slot & number_mask()) - 1; }

  /// The record with these bits of the hash for which `is_match(record)` holds, else no_record.
  template <class Match>
  [[nodiscard]] std::uint32_t probe(std::uint64_t hash, Match&& is_match) const {
    const std::uint32_t tag_mask = ~number_mask();
    std::size_t at = place(hash);
    for (std::size_t probes = 0; probes < count(); ++probes, at = (at + 1) & wrap()) {
      const std::uint32_t slot = slots[at].load(std::memory_order_acquire);
      if (slot == vacant) return no_record;
      if (((slot ^ static_cast<std::uint32_t>(hash)) & tag_mask) == 0 && is_match(record(slot))) return record(slot);
    }
    return no_record;
  }
  /// The writer's: there must be a vacant slot.
  void put(std::uint64_t hash, std::uint32_t record) const noexcept;

  static constexpr unsigned most_depth = 16;  ///< bits of a hash that may choose a segment

 private:
  static constexpr unsigned number_shift = 56;  ///< no address of a process has more bits
  static constexpr unsigned bits_mask = 63;     ///< of an address of a cache line, all are 0
};

/// Extendible hashing (Fagin et al., "Extendible hashing, a fast access method for dynamic files", 1979): a directory
/// of segments by the first bits of hashes, each with linear probing; a segment that is full is split in two, so that
/// the table grows by little at a time.
///
/// One thread changes it, others find meanwhile and wait for nothing. An erased slot is filled by those behind it, so
/// that no trace of it remains, and the slots of a segment that was split are used for the next one. Before a slot that
/// a reader may still need is overwritten, its entry is elsewhere and a counter, one for each 64th of the hashes, has
/// grown. A reader that found nothing looks at the counter again: if it has grown, so may what it read be of another
/// time, and it starts again. What it finds in slots of another time is no more than a number, which leads to a record
/// with another key, or to none: numbers must be checked against the bound of the records.
class slot_table {
 public:
  explicit slot_table(line_arena& arena) noexcept : arena_(arena) {}
  slot_table(const slot_table&) = delete;
  slot_table& operator=(const slot_table&) = delete;
  slot_table(slot_table&&) = delete;
  slot_table& operator=(slot_table&&) = delete;
  ~slot_table() = default;

  /// The record with this hash for which `is_match(record)` holds, else no_record; also if the table has changed at
  /// each of several looks. Any thread.
  template <class Match>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, Match&& is_match) const {
    const std::atomic<std::uint32_t>& changes = changes_[counter_of(hash)];
    for (int look = 0; look < most_looks; ++look) {
      const std::uint32_t begin = changes.load(std::memory_order_acquire);
      const segment_slots block = block_of(hash);
      if (block.slots == nullptr) return no_record;
      const std::uint32_t record = block.probe(hash, is_match);
      if (record != no_record) return record;
      if (changes.load(std::memory_order_acquire) == begin) return no_record;
    }
    return no_record;
  }
  /// A number that may be that of the record with this hash, else no_record. Any thread.
  [[nodiscard]] std::uint32_t candidate(std::uint64_t hash) const noexcept {
    const segment_slots block = block_of(hash);
    return block.slots == nullptr ? no_record : block.probe(hash, [](std::uint32_t) { return true; });
  }
  void prefetch(std::uint64_t hash) const noexcept {
    const segment_slots block = block_of(hash);
    if (block.slots != nullptr) __builtin_prefetch(block.slots + block.place(hash));
  }

  /// Makes room for one record with this hash and a number up to `record`; `hash_of(record)` gives hashes,
  /// `prefetch(record)` is called some time before. Throws std::bad_alloc and keeps what there is.
  template <class Hash, class Prefetch>
  void make_room(std::uint64_t hash, std::uint32_t record, Hash&& hash_of, Prefetch&& prefetch) {
    while (!has_room(hash, record)) grow(hash, record, hash_of, prefetch);
  }
  /// Adds a record for which there is room and which is not there.
  void insert(std::uint64_t hash, std::uint32_t record) noexcept;
  /// Takes a record out that is there; `hash_of` as above.
  template <class Hash>
  void erase(std::uint64_t hash, std::uint32_t record, Hash&& hash_of) noexcept;

  /// Beside those of the arena.
  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  static constexpr int most_looks = 64;
  static constexpr unsigned counter_bits = 6;
  static constexpr unsigned first_bits = 6;  ///< of the slots of the first segment, which grows before it is split
  static constexpr unsigned full_bits = 14;

  using slots_word = std::atomic<std::uint64_t>;
  struct table_segment {
    segment_slots block{};
    unsigned depth = 0;  ///< bits of a hash that choose it
    std::uint32_t size = 0;
    std::uint32_t most_size = 0;
  };

  /// The first `bits` bits of a hash.
  [[nodiscard]] static std::size_t prefix(std::uint64_t hash, unsigned bits) noexcept {
    return static_cast<std::size_t>((hash >> 1) >> (63 - bits));
  }
  [[nodiscard]] static std::size_t counter_of(std::uint64_t hash) noexcept { return prefix(hash, counter_bits); }
  [[nodiscard]] segment_slots block_of(std::uint64_t hash) const noexcept {
    const std::uint64_t directory = directory_.load(std::memory_order_acquire);
    if (directory == 0) return {};
    const auto* const words = reinterpret_cast<const slots_word*>(directory & ~std::uint64_t{63});
    return segment_slots::unpack(words[prefix(hash, directory & 63)].load(std::memory_order_acquire));
  }
  [[nodiscard]] table_segment& segment_of(std::uint64_t hash) noexcept {
    return segments_[owners_[prefix(hash, depth_)]];
  }
  [[nodiscard]] bool has_room(std::uint64_t hash, std::uint32_t record) noexcept {
    if (segments_.empty()) return false;
    const table_segment& target = segment_of(hash);
    return target.size < target.most_size && record < target.block.number_mask();
  }

  template <class Hash, class Prefetch>
  void grow(std::uint64_t hash, std::uint32_t record, Hash&& hash_of, Prefetch&& prefetch);
  template <class Visit, class Prefetch>
  static void visit_slots(const segment_slots& block, Visit&& visit, Prefetch&& prefetch);
  void stock(unsigned bits, std::size_t count);
  [[nodiscard]] table_segment make_segment(std::uint64_t hash, unsigned bits, unsigned depth) noexcept;
  void make_directory(unsigned depth);
  void make_first();
  void publish(std::uint64_t hash, std::uint32_t owner) noexcept;
  void retire(std::uint64_t hash, const table_segment& old) noexcept;
  void grow_counter(std::size_t counter) noexcept {
    changes_[counter].store(changes_[counter].load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  std::atomic<std::uint64_t> directory_{0};  ///< the address of a slots_word for each prefix, and depth_
  alignas(64) std::array<std::atomic<std::uint32_t>, std::size_t{1} << counter_bits> changes_{};
  line_arena& arena_;
  std::span<slots_word> words_{};
  unsigned depth_ = 0;
  std::uint32_t most_record_ = 0;
  std::vector<table_segment> segments_{};
  std::vector<std::uint32_t> owners_{};                                           ///< numbers of segments by prefix
  std::array<std::vector<std::atomic<std::uint32_t>*>, full_bits + 1> unused_{};  ///< slots by bits of their number
};

/// Replaces the segment of a hash by a larger one, or by two.
template <class Hash, class Prefetch>
void slot_table::grow(std::uint64_t hash, std::uint32_t record, Hash&& hash_of, Prefetch&& prefetch) {
  most_record_ = std::max(most_record_, record);
  if (segments_.empty()) return make_first();
  const bool is_full = segment_of(hash).size >= segment_of(hash).most_size;
  const unsigned old_bits = segment_of(hash).block.bits;
  const bool is_split = is_full && old_bits == full_bits;
  const unsigned bits = is_full && !is_split ? old_bits + 1 : old_bits;
  stock(bits, is_split ? 2 : 1);
  unused_[old_bits].reserve(unused_[old_bits].size() + 1);
  if (is_split && segment_of(hash).depth == depth_) make_directory(depth_ + 1);
  segments_.reserve(segments_.size() + 1);
  const std::uint32_t owner = owners_[slot_table::prefix(hash, depth_)];
  const table_segment old = segments_[owner];
  const unsigned depth = old.depth + (is_split ? 1U : 0U);
  const std::uint64_t begin = old.depth == 0 ? 0 : hash >> (64 - old.depth) << (64 - old.depth);
  const std::uint64_t middle = begin | std::uint64_t{1} << (63 - old.depth);
  std::array<table_segment, 2> fresh{make_segment(begin, bits, depth), {}};
  if (is_split) fresh[1] = make_segment(middle, bits, depth);
  visit_slots(
      old.block,
      [&](std::uint32_t entry) {
        const std::uint64_t entry_hash = hash_of(entry);
        table_segment& target = fresh[is_split && entry_hash >= middle ? 1 : 0];
        target.block.put(entry_hash, entry);
        ++target.size;
      },
      prefetch);
  segments_[owner] = fresh[0];
  publish(begin, owner);
  if (is_split) {
    segments_.push_back(fresh[1]);
    publish(middle, static_cast<std::uint32_t>(segments_.size() - 1));
  }
  retire(begin, old);
}

template <class Visit, class Prefetch>
void slot_table::visit_slots(const segment_slots& block, Visit&& visit, Prefetch&& prefetch) {
  constexpr std::size_t distance = 32;
  for (std::size_t i = 0; i < block.count(); ++i) {
    if (i + distance < block.count()) {
      const std::uint32_t next = block.slots[i + distance].load(std::memory_order_relaxed);
      if (next != segment_slots::vacant) prefetch(block.record(next));
    }
    const std::uint32_t slot = block.slots[i].load(std::memory_order_relaxed);
    if (slot != segment_slots::vacant) visit(block.record(slot));
  }
}

template <class Hash>
void slot_table::erase(std::uint64_t hash, std::uint32_t record, Hash&& hash_of) noexcept {
  table_segment& target = segment_of(hash);
  const segment_slots block = target.block;
  std::size_t hole = block.place(hash);
  while (block.slots[hole].load(std::memory_order_relaxed) != block.slot(hash, record))
    hole = (hole + 1) & block.wrap();
  for (std::size_t at = (hole + 1) & block.wrap();; at = (at + 1) & block.wrap()) {
    const std::uint32_t slot = block.slots[at].load(std::memory_order_relaxed);
    if (slot == segment_slots::vacant) break;
    const std::uint64_t slot_hash = hash_of(block.record(slot));
    const std::size_t distance = (at - block.place(slot_hash)) & block.wrap();
    if (distance < ((at - hole) & block.wrap())) continue;  // it would come to lie in front of its place
    block.slots[hole].store(slot, std::memory_order_release);
    grow_counter(counter_of(slot_hash));
    hole = at;
  }
  block.slots[hole].store(segment_slots::vacant, std::memory_order_release);
  --target.size;
}

}  // namespace cenote::manager
