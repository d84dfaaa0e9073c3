#include "simulation/optimize/sampled_stack.hpp"

#include <algorithm>
#include <bit>
#include <ranges>

#include "core/key_sample.hpp"

namespace cenote::simulation {

namespace {

constexpr unsigned part_bits = 32;
constexpr std::uint64_t table_salt = 0x6a09e667f3bcc909ULL;

/// The number that a block adds to the tree.
constexpr std::uint64_t one(stack_part part) noexcept {
  return part == stack_part::exact ? std::uint64_t{1} << part_bits : 1;
}

}  // namespace

sampled_stack::sampled_stack(std::size_t blocks)
    : entries_(blocks),
      places_(std::bit_ceil(blocks * 2), no_entry),
      slots_(blocks * 2, no_entry),
      tree_(blocks * 2 + 1) {
  free_.reserve(blocks);
  for (std::size_t number = blocks; number-- > 0;) free_.push_back(static_cast<std::uint32_t>(number));
}

std::size_t sampled_stack::home_of(std::uint64_t key) const noexcept {
  return mixed_bits(key ^ table_salt) & (places_.size() - 1);
}

/// The place of `key`, or the free one where it would be.
std::size_t sampled_stack::place_of(std::uint64_t key) const noexcept {
  std::size_t place = home_of(key);
  while (places_[place] != no_entry && entries_[places_[place]].key != key) place = (place + 1) & (places_.size() - 1);
  return place;
}

std::optional<std::uint32_t> sampled_stack::find(std::uint64_t key) const noexcept {
  const std::uint32_t number = places_[place_of(key)];
  if (number == no_entry) return std::nullopt;
  return number;
}

sampled_stack::depth sampled_stack::depth_of(std::uint32_t entry) const noexcept {
  const std::size_t slot = entries_[entry].slot;
  if (slot >= begin_) return {};
  const std::uint64_t sum = sum_before(begin_) - sum_before(slot + 1);
  return {.exact = static_cast<std::uint32_t>(sum >> part_bits), .sampled = static_cast<std::uint32_t>(sum)};
}

std::uint32_t sampled_stack::push(std::uint64_t key, stack_part part) {
  const std::uint32_t number = free_.back();
  free_.pop_back();
  places_[place_of(key)] = number;
  entries_[number] = {.key = key, .slot = 0, .part = part};
  ++size_;
  exact_ += part == stack_part::exact ? 1 : 0;
  take_slot(number);
  return number;
}

void sampled_stack::raise(std::uint32_t entry) {
  const std::size_t slot = entries_[entry].slot;
  slots_[slot] = no_entry;
  count(slot, 0 - one(entries_[entry].part));
  take_slot(entry);
}

void sampled_stack::set_part(std::uint32_t entry, stack_part part) {
  auto& of = entries_[entry];
  if (of.part == part) return;
  count(of.slot, one(part) - one(of.part));
  of.part = part;
  exact_ = part == stack_part::exact ? exact_ + 1 : exact_ - 1;
}

void sampled_stack::erase(std::uint32_t entry) {
  const auto& of = entries_[entry];
  slots_[of.slot] = no_entry;
  count(of.slot, 0 - one(of.part));
  const std::size_t place = place_of(of.key);
  places_[place] = no_entry;
  close_gap(place);
  free_.push_back(entry);
  --size_;
  exact_ -= of.part == stack_part::exact ? 1 : 0;
}

std::size_t sampled_stack::bytes() const noexcept {
  const auto of = [](const auto& all) { return all.capacity() * sizeof all[0]; };
  return sizeof *this + of(entries_) + of(free_) + of(places_) + of(slots_) + of(tree_);
}

/// Moves what lies behind an emptied place forward, so that no search ends too early.
void sampled_stack::close_gap(std::size_t gap) noexcept {
  const std::size_t mask = places_.size() - 1;
  for (std::size_t place = (gap + 1) & mask; places_[place] != no_entry; place = (place + 1) & mask) {
    const std::size_t home = home_of(entries_[places_[place]].key);
    if (((place - home) & mask) < ((place - gap) & mask)) continue;
    places_[gap] = places_[place];
    places_[place] = no_entry;
    gap = place;
  }
}

void sampled_stack::take_slot(std::uint32_t number) {
  if (next_ == slots_.size()) renumber();
  entries_[number].slot = static_cast<std::uint32_t>(next_);
  slots_[next_] = number;
  count(next_, one(entries_[number].part));
  ++next_;
}

/// Takes the gaps out: at least half of the slots are free then.
void sampled_stack::renumber() {
  std::size_t to = 0;
  std::size_t begin = 0;
  for (std::size_t slot = 0; slot < next_; ++slot) {
    if (slot == begin_) begin = to;
    const std::uint32_t number = slots_[slot];
    if (number == no_entry) continue;
    entries_[number].slot = static_cast<std::uint32_t>(to);
    slots_[to++] = number;
  }
  begin_ = begin_ >= next_ ? to : begin;
  next_ = to;
  std::ranges::fill(slots_ | std::views::drop(to), no_entry);
  std::ranges::fill(tree_, std::uint64_t{0});
  for (std::size_t slot = 0; slot < to; ++slot) tree_[slot + 1] = one(entries_[slots_[slot]].part);
  for (std::size_t i = 1; i < tree_.size(); ++i) {
    const std::size_t parent = i + (i & (0 - i));
    if (parent < tree_.size()) tree_[parent] += tree_[i];
  }
}

void sampled_stack::count(std::size_t slot, std::uint64_t amount) noexcept {
  for (std::size_t i = slot + 1; i < tree_.size(); i += i & (0 - i)) tree_[i] += amount;
}

std::uint64_t sampled_stack::sum_before(std::size_t slot) const noexcept {
  std::uint64_t sum = 0;
  for (std::size_t i = slot; i > 0; i &= i - 1) sum += tree_[i];
  return sum;
}

}  // namespace cenote::simulation
