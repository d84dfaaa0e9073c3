#include "services/manager/index/slot_table.hpp"

#include <algorithm>

namespace cenote::manager {

void slot_table::insert(std::uint64_t hash, std::uint32_t record) noexcept {
  put(*current_.load(std::memory_order_relaxed), hash, record);
  ++size_;
}

void slot_table::put(const slot_block& block, std::uint64_t hash, std::uint32_t record) noexcept {
  std::size_t at = block.place(hash);
  while (block.slots[at].load(std::memory_order_relaxed) != vacant) at = (at + 1) & block.mask();
  block.slots[at].store(block.slot(hash, record), std::memory_order_release);
}

/// A block that is larger, or as large with more bits for numbers.
std::unique_ptr<slot_table::slot_block> slot_table::make_block(std::uint32_t record) const {
  auto block = std::make_unique<slot_block>();
  block->bits = least_bits;
  if (!blocks_.empty()) block->bits = blocks_.back()->bits + (size_ < most_size_ ? 0U : 1U);
  block->slots = make_line_array<std::atomic<std::uint32_t>>(block->mask() + 1);
  // For as many records as all parts have when this one grows next.
  const std::uint64_t records = std::max<std::uint64_t>(record, block->mask() << part_bits) + 1;
  const unsigned number_bits = std::min(static_cast<unsigned>(std::bit_width(records)), 32U);
  block->number_mask = static_cast<std::uint32_t>((std::uint64_t{1} << number_bits) - 1);
  return block;
}

void slot_table::publish(std::unique_ptr<slot_block> block) {
  most_size_ = (block->mask() + 1) * most_load_ / 256;
  blocks_.push_back(std::move(block));
  current_.store(blocks_.back().get(), std::memory_order_release);
}

std::size_t slot_table::bytes() const noexcept {
  std::size_t sum = 0;
  for (const auto& block : blocks_) sum += sizeof(slot_block) + (block->mask() + 1) * sizeof(std::uint32_t);
  return sum;
}

}  // namespace cenote::manager
