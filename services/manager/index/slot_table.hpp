// Open addressing from hashes to record numbers: four bytes a slot, the key lies in the record.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "services/manager/index/lookup_answer.hpp"
#include "services/manager/index/stable_array.hpp"

namespace cenote::manager {

/// A part of an index: the records whose hashes begin with the same part_bits bits. Linear probing; bits of a slot that
/// no number needs hold bits of the hash, so that a slot of another key seldom costs a look at its record.
///
/// One thread changes it, others find meanwhile and wait for nothing. An erased slot is filled by those behind it, so
/// that no trace of it remains: a slot is copied before it is overwritten, and changes_ grows in between. A reader that
/// missed a slot on its way therefore sees that changes_ has grown, and looks again. A table that grows is replaced;
/// the one before stays until the index dies, as nothing counts readers: together they are as large as the last.
class slot_table {
 public:
  static constexpr unsigned part_bits = 6;

  /// The record with this hash for which `is_match(record)` holds, else no_record; also if the table has changed at
  /// each of several looks. Any thread.
  template <class Match>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, Match&& is_match) const {
    for (int look = 0; look < most_looks; ++look) {
      const std::uint32_t begin = changes_.load(std::memory_order_acquire);
      const slot_block* const block = current_.load(std::memory_order_acquire);
      if (block == nullptr) return no_record;
      const std::uint32_t record = block->probe(hash, is_match);
      if (record != no_record) return record;
      if (changes_.load(std::memory_order_acquire) == begin) return no_record;
    }
    return no_record;
  }
  /// A record that may have the hash, else no_record. Any thread.
  [[nodiscard]] std::uint32_t candidate(std::uint64_t hash) const noexcept {
    const slot_block* const block = current_.load(std::memory_order_acquire);
    return block == nullptr ? no_record : block->probe(hash, [](std::uint32_t) { return true; });
  }
  void prefetch(std::uint64_t hash) const noexcept {
    const slot_block* const block = current_.load(std::memory_order_acquire);
    if (block != nullptr) __builtin_prefetch(block->slots.get() + block->place(hash));
  }

  /// The table that readers use after it has grown; `load` in 256ths: how full it may be. Parts of an index differ in
  /// it, so that they do not all grow at once.
  void set_most_load(std::uint32_t load) noexcept { most_load_ = load; }
  /// Makes room for a record with a number up to `record`; `hash_of(record)` gives hashes, `prefetch(record)` is called
  /// some time before. Throws std::bad_alloc and leaves the table as it was.
  template <class Hash, class Prefetch>
  void make_room(std::uint32_t record, Hash&& hash_of, Prefetch&& prefetch) {
    const slot_block* const block = current_.load(std::memory_order_relaxed);
    if (block != nullptr && size_ < most_size_ && record < block->number_mask) [[likely]]
      return;
    grow(record, hash_of, prefetch);
  }
  /// Adds a record for which there is room and which is not there.
  void insert(std::uint64_t hash, std::uint32_t record) noexcept;
  /// Takes a record out that is there; `hash_of` as above.
  template <class Hash>
  void erase(std::uint64_t hash, std::uint32_t record, Hash&& hash_of) noexcept;

  [[nodiscard]] std::size_t bytes() const noexcept;

 private:
  static constexpr std::uint32_t vacant = 0;
  static constexpr int most_looks = 64;
  static constexpr unsigned least_bits = 4;

  /// A slot has the record's number + 1 below, bits of the hash above.
  struct slot_block {
    line_array<std::atomic<std::uint32_t>> slots{};
    unsigned bits = 0;              ///< of the number of slots
    std::uint32_t number_mask = 0;  ///< bits of a slot that hold a number

    [[nodiscard]] std::size_t mask() const noexcept { return (std::size_t{1} << bits) - 1; }
    [[nodiscard]] std::size_t place(std::uint64_t hash) const noexcept {
      return static_cast<std::size_t>((hash << part_bits) >> (64 - bits));
    }
    [[nodiscard]] std::uint32_t slot(std::uint64_t hash, std::uint32_t record) const noexcept {
      return (static_cast<std::uint32_t>(hash) & ~number_mask) | (record + 1);
    }
    [[nodiscard]] std::uint32_t record(std::uint32_t slot) const noexcept { return (slot & number_mask) - 1; }

    template <class Match>
    [[nodiscard]] std::uint32_t probe(std::uint64_t hash, Match&& is_match) const {
      const std::size_t wrap = mask();
      std::size_t at = place(hash);
      for (std::size_t probes = 0; probes <= wrap; ++probes, at = (at + 1) & wrap) {
        const std::uint32_t slot = slots[at].load(std::memory_order_acquire);
        if (slot == vacant) return no_record;
        if (((slot ^ static_cast<std::uint32_t>(hash)) & ~number_mask) == 0 && is_match(record(slot))) {
          return record(slot);
        }
      }
      return no_record;
    }
  };

  template <class Hash, class Prefetch>
  void grow(std::uint32_t record, Hash&& hash_of, Prefetch&& prefetch);
  [[nodiscard]] std::unique_ptr<slot_block> make_block(std::uint32_t record) const;
  void publish(std::unique_ptr<slot_block> block);
  static void put(const slot_block& block, std::uint64_t hash, std::uint32_t record) noexcept;

  std::atomic<const slot_block*> current_{nullptr};
  std::atomic<std::uint32_t> changes_{0};
  std::uint32_t most_load_ = 192;
  std::size_t size_ = 0;
  std::size_t most_size_ = 0;
  std::vector<std::unique_ptr<slot_block>> blocks_{};  ///< the last is the current one
};

template <class Hash, class Prefetch>
void slot_table::grow(std::uint32_t record, Hash&& hash_of, Prefetch&& prefetch) {
  std::unique_ptr<slot_block> wider = make_block(record);
  blocks_.reserve(blocks_.size() + 1);
  constexpr std::size_t distance = 32;
  const slot_block* const old = current_.load(std::memory_order_relaxed);
  const std::size_t count = old == nullptr ? 0 : old->mask() + 1;
  for (std::size_t i = 0; i < count; ++i) {
    if (i + distance < count) {
      const std::uint32_t next = old->slots[i + distance].load(std::memory_order_relaxed);
      if (next != vacant) prefetch(old->record(next));
    }
    const std::uint32_t slot = old->slots[i].load(std::memory_order_relaxed);
    if (slot != vacant) put(*wider, hash_of(old->record(slot)), old->record(slot));
  }
  publish(std::move(wider));
}

template <class Hash>
void slot_table::erase(std::uint64_t hash, std::uint32_t record, Hash&& hash_of) noexcept {
  const slot_block& block = *current_.load(std::memory_order_relaxed);
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
