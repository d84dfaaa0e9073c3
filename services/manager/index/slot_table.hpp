// Open addressing from hashes to record numbers: four bytes a slot, the key lies in the record.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "services/manager/index/line_arena.hpp"
#include "services/manager/index/lookup_answer.hpp"

namespace cenote::manager {

/// A part of an index: the records whose hashes begin with the same part_bits bits. Linear probing; bits of a slot that
/// no number needs hold bits of the hash, so that a slot of another key seldom costs a look at its record.
///
/// One thread changes it, others find meanwhile and wait for nothing. An erased slot is filled by those behind it, so
/// that no trace of it remains: a slot is copied before it is overwritten, and changes_ grows in between. A reader that
/// missed a slot on its way therefore sees that changes_ has grown, and looks again. A table that grows is replaced;
/// the one before stays until the arena dies, as nothing counts readers: together they are as large as the last.
class alignas(64) slot_table {
 public:
  static constexpr unsigned part_bits = 6;

  /// The record with this hash for which `is_match(record)` holds, else no_record; also if the table has changed at
  /// each of several looks. Any thread.
  template <class Match>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, Match&& is_match) const {
    for (int look = 0; look < most_looks; ++look) {
      const std::uint32_t begin = changes_.load(std::memory_order_acquire);
      const slot_block block = current(std::memory_order_acquire);
      if (block.slots == nullptr) return no_record;
      const std::uint32_t record = block.probe(hash, is_match);
      if (record != no_record) return record;
      if (changes_.load(std::memory_order_acquire) == begin) return no_record;
    }
    return no_record;
  }
  /// A record that may have the hash, else no_record. Any thread.
  [[nodiscard]] std::uint32_t candidate(std::uint64_t hash) const noexcept {
    const slot_block block = current(std::memory_order_acquire);
    return block.slots == nullptr ? no_record : block.probe(hash, [](std::uint32_t) { return true; });
  }
  void prefetch(std::uint64_t hash) const noexcept {
    const slot_block block = current(std::memory_order_acquire);
    if (block.slots != nullptr) __builtin_prefetch(block.slots + block.place(hash));
  }

  /// `load` in 256ths: how full it may be. Parts of an index differ in it, so that they do not all grow at once.
  void set_most_load(std::uint32_t load) noexcept { most_load_ = load; }
  /// Makes room for a record with a number up to `record`; `hash_of(record)` gives hashes, `prefetch(record)` is called
  /// some time before. Throws std::bad_alloc and leaves the table as it was.
  template <class Hash, class Prefetch>
  void make_room(line_arena& arena, std::uint32_t record, Hash&& hash_of, Prefetch&& prefetch) {
    const slot_block block = current(std::memory_order_relaxed);
    if (block.slots != nullptr && size_ < most_size_ && record < block.number_mask()) [[likely]]
      return;
    grow(arena, record, hash_of, prefetch);
  }
  /// Adds a record for which there is room and which is not there.
  void insert(std::uint64_t hash, std::uint32_t record) noexcept;
  /// Takes a record out that is there; `hash_of` as above.
  template <class Hash>
  void erase(std::uint64_t hash, std::uint32_t record, Hash&& hash_of) noexcept;

 private:
  static constexpr std::uint32_t vacant = 0;
  static constexpr int most_looks = 64;
  static constexpr unsigned least_bits = 4;
  static constexpr unsigned number_shift = 56;  ///< no address of a process has more bits
  static constexpr unsigned bits_mask = 63;     ///< of an address of a cache line, all are 0

  /// A slot has the record's number + 1 below, bits of the hash above. What readers need of a block is one word, so
  /// that those of all parts stay in the processor's cache.
  struct slot_block {
    std::atomic<std::uint32_t>* slots = nullptr;
    unsigned bits = 0;         ///< of the number of slots
    unsigned number_bits = 0;  ///< of a slot, that hold a number

    [[nodiscard]] std::uint64_t pack() const noexcept {
      return reinterpret_cast<std::uintptr_t>(slots) | bits | std::uint64_t{number_bits} << number_shift;
    }
    [[nodiscard]] static slot_block unpack(std::uint64_t word) noexcept {
      constexpr std::uint64_t address = ((std::uint64_t{1} << number_shift) - 1) & ~std::uint64_t{bits_mask};
      return {.slots = reinterpret_cast<std::atomic<std::uint32_t>*>(word & address),
              .bits = static_cast<unsigned>(word & bits_mask),
              .number_bits = static_cast<unsigned>(word >> number_shift)};
    }
    [[nodiscard]] std::uint32_t number_mask() const noexcept {
      return static_cast<std::uint32_t>((std::uint64_t{1} << number_bits) - 1);
    }
    [[nodiscard]] std::size_t mask() const noexcept { return (std::size_t{1} << bits) - 1; }
    [[nodiscard]] std::size_t place(std::uint64_t hash) const noexcept {
      return static_cast<std::size_t>((hash << part_bits) >> (64 - bits));
    }
    [[nodiscard]] std::uint32_t slot(std::uint64_t hash, std::uint32_t record) const noexcept {
      return (static_cast<std::uint32_t>(hash) & ~number_mask()) | (record + 1);
    }
    [[nodiscard]] std::uint32_t record(std::uint32_t slot) const noexcept { return (slot & number_mask()) - 1; }

    template <class Match>
    [[nodiscard]] std::uint32_t probe(std::uint64_t hash, Match&& is_match) const {
      const std::size_t wrap = mask();
      const std::uint32_t tag_mask = ~number_mask();
      std::size_t at = place(hash);
      for (std::size_t probes = 0; probes <= wrap; ++probes, at = (at + 1) & wrap) {
        const std::uint32_t slot = slots[at].load(std::memory_order_acquire);
        if (slot == vacant) return no_record;
        if (((slot ^ static_cast<std::uint32_t>(hash)) & tag_mask) == 0 && is_match(record(slot))) {
          return record(slot);
        }
      }
      return no_record;
    }
  };

  template <class Hash, class Prefetch>
  void grow(line_arena& arena, std::uint32_t record, Hash&& hash_of, Prefetch&& prefetch);
  [[nodiscard]] slot_block make_block(line_arena& arena, std::uint32_t record) const;
  [[nodiscard]] slot_block current(std::memory_order order) const noexcept {
    return slot_block::unpack(current_.load(order));
  }
  static void put(const slot_block& block, std::uint64_t hash, std::uint32_t record) noexcept;

  std::atomic<std::uint64_t> current_{0};              ///< a slot_block
  alignas(64) std::atomic<std::uint32_t> changes_{0};  ///< readers that find a key do not need this line
  std::uint32_t most_load_ = 192;
  std::size_t size_ = 0;
  std::size_t most_size_ = 0;
};

template <class Hash, class Prefetch>
void slot_table::grow(line_arena& arena, std::uint32_t record, Hash&& hash_of, Prefetch&& prefetch) {
  const slot_block wider = make_block(arena, record);
  constexpr std::size_t distance = 32;
  const slot_block old = current(std::memory_order_relaxed);
  const std::size_t count = old.slots == nullptr ? 0 : old.mask() + 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (i + distance < count) {
      const std::uint32_t next = old.slots[i + distance].load(std::memory_order_relaxed);
      if (next != vacant) prefetch(old.record(next));
    }
    const std::uint32_t slot = old.slots[i].load(std::memory_order_relaxed);
    if (slot != vacant) put(wider, hash_of(old.record(slot)), old.record(slot));
  }
  most_size_ = (wider.mask() + 1) * most_load_ / 256;
  current_.store(wider.pack(), std::memory_order_release);
}

template <class Hash>
void slot_table::erase(std::uint64_t hash, std::uint32_t record, Hash&& hash_of) noexcept {
  const slot_block block = current(std::memory_order_relaxed);
  const std::size_t wrap = block.mask();
  std::size_t hole = block.place(hash);
  while (block.slots[hole].load(std::memory_order_relaxed) != block.slot(hash, record)) hole = (hole + 1) & wrap;
  for (std::size_t at = (hole + 1) & wrap;; at = (at + 1) & wrap) {
    const std::uint32_t slot = block.slots[at].load(std::memory_order_relaxed);
    if (slot == vacant) break;
    const std::size_t home = block.place(hash_of(block.record(slot)));
    if (((at - home) & wrap) < ((at - hole) & wrap)) continue;  // it would come to lie in front of its place
    block.slots[hole].store(slot, std::memory_order_release);
    changes_.store(changes_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
    hole = at;
  }
  block.slots[hole].store(vacant, std::memory_order_release);
  --size_;
}

}  // namespace cenote::manager
