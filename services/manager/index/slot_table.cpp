#include "services/manager/index/slot_table.hpp"

#include <algorithm>

namespace cenote::manager {

void slot_table::insert(std::uint64_t hash, std::uint32_t record) noexcept {
  put(current(std::memory_order_relaxed), hash, record);
  ++size_;
}

void slot_table::put(const slot_block& block, std::uint64_t hash, std::uint32_t record) noexcept {
  std::size_t at = block.place(hash);
  while (block.slots[at].load(std::memory_order_relaxed) != vacant) at = (at + 1) & block.mask();
  block.slots[at].store(block.slot(hash, record), std::memory_order_release);
}

/// A block that is larger, or as large with more bits for numbers.
slot_table::slot_block slot_table::make_block(line_arena& arena, std::uint32_t record) const {
  const slot_block old = current(std::memory_order_relaxed);
  slot_block block{.bits = least_bits};
  if (old.slots != nullptr) block.bits = old.bits + (size_ < most_size_ ? 0U : 1U);
  block.slots = arena.make<std::atomic<std::uint32_t>>(block.mask() + 1).data();
  // For as many records as all parts have when this one grows next.
  const std::uint64_t records = std::max<std::uint64_t>(record, block.mask() << part_bits) + 1;
  block.number_bits = std::min(static_cast<unsigned>(std::bit_width(records)), 32U);
  return block;
}

}  // namespace cenote::manager
