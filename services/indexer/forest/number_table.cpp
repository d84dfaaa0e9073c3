#include "services/indexer/forest/number_table.hpp"

#include <algorithm>

#include "core/huge_vector.hpp"

namespace cenote::indexer {

bool number_table::erase(std::uint64_t hash, std::uint32_t number) noexcept {
  slot_block* const slots = slots_.load(std::memory_order_relaxed);
  if (slots == nullptr) return false;
  const std::uint32_t target = tag(hash) | (number + first);
  std::size_t at = slots->place(hash);
  for (std::size_t probes = 0; probes < slots->capacity; ++probes) {
    const std::uint32_t slot = slots->begin()[at].load(std::memory_order_relaxed);
    if (slot == vacant) return false;
    if (slot == target) {
      // A slot in front of a vacant one ends no search that goes on behind it.
      const std::size_t next = at + 1 == slots->capacity ? 0 : at + 1;
      const bool is_last = slots->begin()[next].load(std::memory_order_relaxed) == vacant;
      slots->begin()[at].store(is_last ? vacant : removed, std::memory_order_release);
      if (is_last) --occupied_;
      --size_;
      return true;
    }
    if (++at == slots->capacity) at = 0;
  }
  return false;
}

number_table::slot_block* number_table::allocate(std::size_t capacity, std::size_t reserve) noexcept {
  void* const memory = retired_.budget().allocate(bytes_of(capacity), reserve);
  if (memory == nullptr) return nullptr;
  auto* const slots = new (memory) slot_block{capacity};
  std::uninitialized_value_construct_n(slots->begin(), capacity);
  return slots;
}

std::size_t number_table::next_capacity(std::size_t numbers) const noexcept {
  const slot_block* const slots = slots_.load(std::memory_order_relaxed);
  const std::size_t present = slots == nullptr ? 0 : slots->capacity;
  const std::size_t least = std::max<std::size_t>(64, numbers + numbers / 3 + 8);  // at most 3/4 full
  if (least <= present) return present;  // only slots of removed numbers are in the way
  std::size_t bytes = bytes_of(std::max(least, present + present / 2));
  if (bytes >= 2 * huge_pages::size) bytes = (bytes + huge_pages::size - 1) / huge_pages::size * huge_pages::size;
  return (bytes - sizeof(slot_block)) / sizeof(std::atomic<std::uint32_t>);
}

}  // namespace cenote::indexer
