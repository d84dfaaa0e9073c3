#include "services/manager/index/slot_table.hpp"

#include <algorithm>
#include <bit>
#include <new>

namespace cenote::manager {

void segment_slots::put(std::uint64_t hash, std::uint32_t record) const noexcept {
  std::size_t at = place(hash);
  while (slots[at].load(std::memory_order_relaxed) != vacant) at = (at + 1) & wrap();
  slots[at].store(slot(hash, record), std::memory_order_release);
}

void slot_table::insert(std::uint64_t hash, std::uint32_t record) noexcept {
  table_segment& target = segment_of(hash);
  target.block.put(hash, record);
  ++target.size;
}

/// Has `count` arrays of slots ready.
void slot_table::stock(unsigned bits, std::size_t count) {
  auto& unused = unused_[bits];
  unused.reserve(count);
  while (unused.size() < count)
    unused.push_back(arena_.make<std::atomic<std::uint32_t>>(std::size_t{1} << bits).data());
}

/// An empty segment, of slots from stock(), for the hashes that begin as `hash` does.
slot_table::table_segment slot_table::make_segment(std::uint64_t hash, unsigned bits, unsigned depth) noexcept {
  // Until it is full, there may be twice as many records as now, and as many as it has slots.
  const std::uint64_t records = std::max(2 * (std::uint64_t{most_record_} + 1), std::uint64_t{1} << bits);
  const auto number_bits = std::min(static_cast<unsigned>(std::bit_width(records)), 32U);
  const segment_slots block{.slots = unused_[bits].back(), .bits = bits, .number_bits = number_bits};
  unused_[bits].pop_back();
  for (std::size_t i = 0; i < block.count(); ++i)
    block.slots[i].store(segment_slots::vacant, std::memory_order_release);
  // From 154/256 to 205/256, so that segments are split one after the other and no batch waits for all of them.
  const std::size_t load = 154 + 51 * counter_of(hash) / ((std::size_t{1} << counter_bits) - 1);
  return {
      .block = block, .depth = depth, .size = 0, .most_size = static_cast<std::uint32_t>(block.count() * load / 256)};
}

/// A directory that is replaced stays for its readers; all of them together are as large as the last.
void slot_table::make_directory(unsigned depth) {
  if (depth > segment_slots::most_depth) throw std::bad_alloc();
  const std::size_t count = std::size_t{1} << depth;
  std::vector<std::uint32_t> owners(count, 0);
  const std::span<slots_word> words = arena_.make<slots_word>(count);
  for (std::size_t i = 0; i < count && !owners_.empty(); ++i) {
    owners[i] = owners_[i >> (depth - depth_)];
    words[i].store(segments_[owners[i]].block.pack(), std::memory_order_relaxed);
  }
  owners_ = std::move(owners);
  words_ = words;
  depth_ = depth;
  directory_.store(reinterpret_cast<std::uintptr_t>(words.data()) | depth, std::memory_order_release);
}

void slot_table::make_first() {
  stock(first_bits, 1);
  segments_.reserve(1);
  make_directory(0);
  segments_.push_back(make_segment(0, first_bits, 0));
  publish(0, 0);
}

/// Leads all hashes of a segment to it; `hash` is the first of them.
void slot_table::publish(std::uint64_t hash, std::uint32_t owner) noexcept {
  const table_segment& target = segments_[owner];
  const std::size_t begin = prefix(hash, depth_);
  for (std::size_t i = begin; i < begin + (std::size_t{1} << (depth_ - target.depth)); ++i) {
    owners_[i] = owner;
    words_[i].store(target.block.pack(), std::memory_order_release);
  }
}

/// Gives slots back that no directory leads to any more.
void slot_table::retire(std::uint64_t hash, const table_segment& old) noexcept {
  const std::size_t begin = counter_of(hash);
  const std::size_t count = old.depth >= counter_bits ? 1 : std::size_t{1} << (counter_bits - old.depth);
  for (std::size_t i = begin; i < begin + count; ++i) grow_counter(i);
  unused_[old.block.bits].push_back(old.block.slots);
}

std::size_t slot_table::bytes() const noexcept {
  std::size_t sum = segments_.capacity() * sizeof(table_segment) + owners_.capacity() * sizeof(std::uint32_t);
  for (const auto& unused : unused_) sum += unused.capacity() * sizeof(unused[0]);
  return sum;
}

}  // namespace cenote::manager
