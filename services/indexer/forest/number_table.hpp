// Open addressing from hashes to numbers of 32 bits: four bytes a slot, the key lies where the number leads.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

#include "services/indexer/forest/epochs.hpp"
#include "services/indexer/forest/index_budget.hpp"

namespace cenote::indexer {

/// Spreads the bits of `value`: the folded product of 128 bits, as in wyhash.
[[nodiscard]] inline std::uint64_t spread(std::uint64_t value, std::uint64_t seed) noexcept {
  __extension__ using wide = unsigned __int128;
  const wide product = wide{value ^ seed ^ 0x9e37'79b9'7f4a'7c15U} * 0xd6e8'feb8'6659'fd93U;
  const std::uint64_t folded = static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
  return folded * 0xff51'afd7'ed55'8ccdU;
}

/// Numbers by hash, with linear probing. Bits of a slot that no number needs hold bits of the hash, so that a slot of
/// another key seldom costs a look at it. One thread changes it, others may find meanwhile: a table that grows is
/// replaced and the old one retired.
class number_table {
 public:
  static constexpr std::uint32_t no_number = 0xffff'ffff;

  /// For numbers below `numbers`.
  number_table(retirement_list& retired, std::uint64_t numbers) noexcept
      : retired_(retired), number_bits_(static_cast<unsigned>(std::bit_width(numbers + 1))) {}
  number_table(const number_table&) = delete;
  number_table& operator=(const number_table&) = delete;
  number_table(number_table&&) = delete;
  number_table& operator=(number_table&&) = delete;
  ~number_table() { release(slots_.load(std::memory_order_relaxed)); }

  /// The number with this hash for which `is_it(number)` holds, else none.
  template <class Predicate>
  [[nodiscard]] std::uint32_t find(std::uint64_t hash, Predicate&& is_it) const noexcept {
    const slot_block* const slots = slots_.load(std::memory_order_acquire);
    if (slots == nullptr) return no_number;
    const std::uint32_t target = tag(hash);
    std::size_t at = slots->place(hash);
    for (std::size_t probes = 0; probes < slots->capacity; ++probes) {
      const std::uint32_t slot = slots->begin()[at].load(std::memory_order_acquire);
      if (slot == vacant) return no_number;
      if (slot >= first && (slot & ~number_mask()) == target) {
        const std::uint32_t number = (slot & number_mask()) - first;
        if (is_it(number)) return number;
      }
      if (++at == slots->capacity) at = 0;
    }
    return no_number;
  }

  /// Adds a number; there must be room().
  void insert(std::uint64_t hash, std::uint32_t number) noexcept {
    slot_block* const slots = slots_.load(std::memory_order_relaxed);
    std::size_t at = slots->place(hash);
    std::uint32_t slot = slots->begin()[at].load(std::memory_order_relaxed);
    while (slot >= first) {
      if (++at == slots->capacity) at = 0;
      slot = slots->begin()[at].load(std::memory_order_relaxed);
    }
    if (slot == vacant) ++occupied_;
    ++size_;
    slots->begin()[at].store(tag(hash) | (number + first), std::memory_order_release);
  }

  /// Takes a number out if it is there.
  bool erase(std::uint64_t hash, std::uint32_t number) noexcept;

  /// Whether insert() may add a number now.
  [[nodiscard]] bool has_room() const noexcept { return occupied_ < most_occupied_; }
  /// Makes room for `more` numbers; false if the budget does not have it beside `reserve`. `hash_of(number)` gives
  /// their hashes, `prefetch(number)` is called some time before.
  template <class Hash, class Prefetch>
  [[nodiscard]] bool make_room(std::size_t growth, std::size_t reserve, Hash&& hash_of, Prefetch&& prefetch) noexcept;

  void prefetch(std::uint64_t hash) const noexcept {
    const slot_block* const slots = slots_.load(std::memory_order_acquire);
    if (slots != nullptr) __builtin_prefetch(slots->begin() + slots->place(hash));
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  static constexpr std::uint32_t vacant = 0;
  static constexpr std::uint32_t removed = 1;
  static constexpr std::uint32_t first = 2;  ///< of the slots that hold a number

  struct slot_block {
    std::size_t capacity = 0;

    [[nodiscard]] std::atomic<std::uint32_t>* begin() noexcept {
      return reinterpret_cast<std::atomic<std::uint32_t>*>(this + 1);
    }
    [[nodiscard]] const std::atomic<std::uint32_t>* begin() const noexcept {
      return reinterpret_cast<const std::atomic<std::uint32_t>*>(this + 1);
    }
    [[nodiscard]] std::size_t place(std::uint64_t hash) const noexcept {
      __extension__ using wide = unsigned __int128;
      return static_cast<std::size_t>((wide{hash} * capacity) >> 64);
    }
  };

  [[nodiscard]] static std::size_t bytes_of(std::size_t capacity) noexcept {
    return sizeof(slot_block) + capacity * sizeof(std::atomic<std::uint32_t>);
  }
  [[nodiscard]] std::uint32_t number_mask() const noexcept {
    return number_bits_ >= 32 ? 0xffff'ffffU : (std::uint32_t{1} << number_bits_) - 1;
  }
  [[nodiscard]] std::uint32_t tag(std::uint64_t hash) const noexcept {
    return static_cast<std::uint32_t>(hash) & ~number_mask();
  }
  [[nodiscard]] slot_block* allocate(std::size_t capacity, std::size_t reserve) noexcept;
  void release(slot_block* slots) noexcept {
    if (slots != nullptr) retired_.budget().release(slots, bytes_of(slots->capacity));
  }
  [[nodiscard]] std::size_t next_capacity(std::size_t numbers) const noexcept;

  retirement_list& retired_;
  unsigned number_bits_;
  std::atomic<slot_block*> slots_{nullptr};
  std::size_t size_ = 0;
  std::size_t occupied_ = 0;  ///< slots with a number or where one was removed
  std::size_t most_occupied_ = 0;
};

template <class Hash, class Prefetch>
bool number_table::make_room(std::size_t growth, std::size_t reserve, Hash&& hash_of, Prefetch&& prefetch) noexcept {
  if (occupied_ + growth <= most_occupied_) return true;
  const std::size_t capacity = next_capacity(size_ + growth);
  slot_block* const slots = allocate(capacity, reserve);
  if (slots == nullptr) return false;
  constexpr std::size_t ahead = 32;
  slot_block* const old = slots_.load(std::memory_order_relaxed);
  for (std::size_t i = 0, j = 0; old != nullptr && i < old->capacity; ++i) {
    for (; j < old->capacity && j < i + ahead; ++j) {
      const std::uint32_t slot = old->begin()[j].load(std::memory_order_relaxed);
      if (slot >= first) prefetch((slot & number_mask()) - first);
    }
    const std::uint32_t slot = old->begin()[i].load(std::memory_order_relaxed);
    if (slot < first) continue;
    std::size_t at = slots->place(hash_of((slot & number_mask()) - first));
    while (slots->begin()[at].load(std::memory_order_relaxed) != vacant) at = at + 1 == capacity ? 0 : at + 1;
    slots->begin()[at].store(slot, std::memory_order_relaxed);
  }
  slots_.store(slots, std::memory_order_release);
  if (old != nullptr) retired_.add_memory(old, bytes_of(old->capacity));
  occupied_ = size_;
  most_occupied_ = capacity - capacity / 5;
  return true;
}

}  // namespace cenote::indexer
