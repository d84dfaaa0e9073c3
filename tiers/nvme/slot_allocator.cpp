#include "tiers/nvme/slot_allocator.hpp"

#include <bit>
#include <cassert>
#include <tuple>

#include "tiers/nvme/io.hpp"

namespace cenote::nvme {

bit_row::bit_row(std::uint64_t bits)
    : words_((bits + 63) / 64, ~std::uint64_t{0}), summary_((words_.size() + 63) / 64), bits_(bits), count_(bits) {
  if (bits % 64 != 0) words_.back() = (std::uint64_t{1} << (bits % 64)) - 1;
  for (std::size_t w = 0; w < words_.size(); ++w) summary_[w / 64] |= std::uint64_t{1} << (w % 64);
}

void bit_row::set(std::uint64_t bit) noexcept {
  assert(!test(bit));
  words_[bit / 64] |= std::uint64_t{1} << (bit % 64);
  summary_[bit / 4096] |= std::uint64_t{1} << (bit / 64 % 64);
  ++count_;
}

void bit_row::clear(std::uint64_t bit) noexcept {
  assert(test(bit));
  std::uint64_t& word = words_[bit / 64];
  word &= ~(std::uint64_t{1} << (bit % 64));
  if (word == 0) summary_[bit / 4096] &= ~(std::uint64_t{1} << (bit / 64 % 64));
  --count_;
}

std::optional<std::uint64_t> bit_row::lowest() const noexcept {
  for (std::uint64_t s = 0; s < summary_.size(); ++s) {
    if (summary_[s] == 0) continue;
    const std::uint64_t word = s * 64 + static_cast<std::uint64_t>(std::countr_zero(summary_[s]));
    return word * 64 + static_cast<std::uint64_t>(std::countr_zero(words_[word]));
  }
  return std::nullopt;
}

slot_allocator::slot_allocator(std::uint64_t first_byte, std::uint64_t end_byte, std::uint64_t extent_bytes)
    : first_byte_(first_byte),
      extent_bytes_(extent_bytes),
      extents_(end_byte > first_byte ? (end_byte - first_byte) / extent_bytes : 0),
      free_extents_(extents_.size()) {
  assert(extents_.size() < none);
}

std::optional<std::uint64_t> slot_allocator::allocate(std::uint64_t slot_bytes) {
  if (!is_class(slot_bytes)) return std::nullopt;
  if (is_large(slot_bytes)) {
    const auto first = free_run(extents_for(slot_bytes));
    if (!first) return std::nullopt;
    take_run(*first, slot_bytes);
    return first_byte_of(*first);
  }
  const auto known = classes_.find(slot_bytes);
  if (known == classes_.end() || known->second.head == none) {
    const auto fresh = free_extents_.lowest();
    if (!fresh) return std::nullopt;
    open_extent(static_cast<std::uint32_t>(*fresh), slot_bytes);
  }
  const std::uint32_t index = classes_.find(slot_bytes)->second.head;
  const std::uint64_t slot = *extents_[index].free.lowest();
  take_slot(index, slot);
  return first_byte_of(index) + slot * slot_bytes;
}

void slot_allocator::release(std::uint64_t offset) {
  const auto index = extent_at(offset);
  assert(index && extents_[*index].slot_bytes != 0);
  const std::uint64_t slot_bytes = extents_[*index].slot_bytes;
  used_bytes_ -= slot_bytes;
  if (is_large(slot_bytes)) {
    for (std::uint64_t i = 0; i < extents_for(slot_bytes); ++i) {
      extents_[*index + i] = {};
      free_extents_.set(*index + i);
    }
    return;
  }
  size_class& of = classes_.find(slot_bytes)->second;
  extent& at = extents_[*index];
  // An extent that was full goes last: the others get the chance to become free again.
  if (at.free.count() == 0) link(of, *index, false);
  at.free.set((offset - first_byte_of(*index)) / slot_bytes);
  ++of.free;
  if (at.free.count() == at.free.size()) close_extent(*index);
}

bool slot_allocator::claim(std::uint64_t offset, std::uint64_t slot_bytes) {
  const auto index = extent_at(offset);
  if (!index || !is_class(slot_bytes)) return false;
  const std::uint64_t inside = offset - first_byte_of(*index);
  if (is_large(slot_bytes)) {
    const std::uint64_t count = extents_for(slot_bytes);
    if (inside != 0 || count > extents_.size() - *index) return false;
    for (std::uint64_t i = 0; i < count; ++i) {
      if (!free_extents_.test(*index + i)) return false;
    }
    take_run(*index, slot_bytes);
    return true;
  }
  if (inside % slot_bytes != 0 || inside / slot_bytes >= extent_bytes_ / slot_bytes) return false;
  const extent& at = extents_[*index];
  if (at.slot_bytes != 0 && (at.slot_bytes != slot_bytes || !at.free.test(inside / slot_bytes))) return false;
  if (at.slot_bytes == 0) open_extent(*index, slot_bytes);
  take_slot(*index, inside / slot_bytes);
  return true;
}

std::uint64_t slot_allocator::free_slots(std::uint64_t slot_bytes) const {
  if (!is_class(slot_bytes)) return 0;
  if (!is_large(slot_bytes)) {
    const auto known = classes_.find(slot_bytes);
    return free_extents_.count() * (extent_bytes_ / slot_bytes) + (known == classes_.end() ? 0 : known->second.free);
  }
  std::uint64_t slots = 0;
  std::uint64_t run = 0;
  for (std::uint64_t i = 0; i < extents_.size(); ++i) {
    run = free_extents_.test(i) ? run + 1 : 0;
    if (run != extents_for(slot_bytes)) continue;
    ++slots;
    run = 0;
  }
  return slots;
}

std::vector<std::uint64_t> slot_allocator::slots_of_extent(std::uint64_t offset) const {
  std::vector<std::uint64_t> offsets;
  const auto index = extent_at(offset);
  if (!index || extents_[*index].slot_bytes == 0) return offsets;
  const extent& at = extents_[*index];
  if (is_large(at.slot_bytes)) return {first_byte_of(at.first)};
  for (std::uint64_t slot = 0; slot < at.free.size(); ++slot) {
    if (!at.free.test(slot)) offsets.push_back(first_byte_of(*index) + slot * at.slot_bytes);
  }
  return offsets;
}

std::optional<std::uint64_t> slot_allocator::emptiest_extent(std::uint64_t except_slot_bytes) const {
  std::optional<std::uint64_t> best;
  for (std::uint64_t i = 0; i < extents_.size(); ++i) {
    const extent& at = extents_[i];
    if (at.slot_bytes == 0 || at.slot_bytes == except_slot_bytes) continue;
    if (is_large(at.slot_bytes) && at.first != i) continue;
    const auto cost = [&](const extent& of) { return std::tuple(used_slots(of), used_slots(of) * of.slot_bytes); };
    if (!best || cost(at) < cost(extents_[*best])) best = i;
  }
  if (best) best = first_byte_of(*best);
  return best;
}

bool slot_allocator::is_class(std::uint64_t slot_bytes) const noexcept {
  return slot_bytes != 0 && slot_bytes % sector_bytes == 0 && slot_bytes <= capacity_bytes();
}

std::uint64_t slot_allocator::extents_for(std::uint64_t slot_bytes) const noexcept {
  return (slot_bytes + extent_bytes_ - 1) / extent_bytes_;
}

std::uint64_t slot_allocator::first_byte_of(std::uint64_t index) const noexcept {
  return first_byte_ + index * extent_bytes_;
}

std::optional<std::uint32_t> slot_allocator::extent_at(std::uint64_t offset) const noexcept {
  if (offset < first_byte_ || (offset - first_byte_) / extent_bytes_ >= extents_.size()) return std::nullopt;
  return static_cast<std::uint32_t>((offset - first_byte_) / extent_bytes_);
}

std::uint64_t slot_allocator::used_slots(const extent& range) const noexcept {
  return is_large(range.slot_bytes) ? 1 : range.free.size() - range.free.count();
}

std::optional<std::uint32_t> slot_allocator::free_run(std::uint64_t count) const noexcept {
  std::uint64_t run = 0;
  for (std::uint64_t i = 0; i < extents_.size(); ++i) {
    run = free_extents_.test(i) ? run + 1 : 0;
    if (run == count) return static_cast<std::uint32_t>(i + 1 - count);
  }
  return std::nullopt;
}

void slot_allocator::take_run(std::uint32_t first, std::uint64_t slot_bytes) {
  for (std::uint64_t i = 0; i < extents_for(slot_bytes); ++i) {
    extents_[first + i].slot_bytes = slot_bytes;
    extents_[first + i].first = first;
    free_extents_.clear(first + i);
  }
  used_bytes_ += slot_bytes;
}

void slot_allocator::open_extent(std::uint32_t index, std::uint64_t slot_bytes) {
  extent& at = extents_[index];
  at.slot_bytes = slot_bytes;
  at.free = bit_row(extent_bytes_ / slot_bytes);
  free_extents_.clear(index);
  size_class& of = classes_[slot_bytes];
  of.free += at.free.size();
  link(of, index, true);
}

void slot_allocator::close_extent(std::uint32_t index) {
  const auto known = classes_.find(extents_[index].slot_bytes);
  known->second.free -= extents_[index].free.size();
  unlink(known->second, index);
  extents_[index] = {};
  free_extents_.set(index);
}

void slot_allocator::take_slot(std::uint32_t index, std::uint64_t slot) {
  extent& at = extents_[index];
  size_class& of = classes_.find(at.slot_bytes)->second;
  at.free.clear(slot);
  --of.free;
  used_bytes_ += at.slot_bytes;
  if (at.free.count() == 0) unlink(of, index);
}

void slot_allocator::link(size_class& bin, std::uint32_t index, bool at_front) {
  extent& at = extents_[index];
  at.previous = at_front ? none : bin.tail;
  at.next = at_front ? bin.head : none;
  (at.previous == none ? bin.head : extents_[at.previous].next) = index;
  (at.next == none ? bin.tail : extents_[at.next].previous) = index;
}

void slot_allocator::unlink(size_class& bin, std::uint32_t index) {
  extent& at = extents_[index];
  (at.previous == none ? bin.head : extents_[at.previous].next) = at.next;
  (at.next == none ? bin.tail : extents_[at.next].previous) = at.previous;
  at.previous = at.next = none;
}

}  // namespace cenote::nvme
