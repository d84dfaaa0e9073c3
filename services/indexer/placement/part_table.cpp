#include "services/indexer/placement/part_table.hpp"

#include <algorithm>
#include <new>

namespace cenote::indexer {

part_table::part_table(std::uint32_t part_tokens, std::uint32_t parts, budget_share& memory)
    : part_tokens_(part_tokens),
      parts_(parts),
      names_(share_allocator<std::pair<const std::uint64_t, part_number>>(memory)),
      slots_(share_allocator<part_slot>(memory)),
      tokens_(share_allocator<std::uint32_t>(memory)),
      lists_(share_allocator<std::pair<const std::uint64_t, share_vector<std::byte>>>(memory)) {}

part_number part_table::find(std::uint64_t hash) const noexcept {
  const auto found = names_.find(hash);
  return found == names_.end() ? no_part : found->second;
}

std::span<const std::byte> part_table::list_of(part_number part) const noexcept {
  const auto found = lists_.find(part);
  return found == lists_.end() ? std::span<const std::byte>() : std::span<const std::byte>(found->second);
}

std::optional<std::uint64_t> part_table::parent_of(part_number last) const noexcept {
  part_number first = last;
  while (slots_[first].predecessor != no_part) first = slots_[first].predecessor;
  return slots_[first].has_parent ? std::optional(slots_[first].parent) : std::nullopt;
}

bool part_table::is_same(part_number part, const part_facts& facts) const noexcept {
  const part_slot& slot = slots_[part];
  const auto parent = slot.has_parent ? std::optional(slot.parent) : std::nullopt;
  return parent == facts.parent && slot.adapter == facts.adapter && slot.predecessor == facts.predecessor &&
         std::ranges::equal(tokens_of(part), facts.tokens) && std::ranges::equal(list_of(part), facts.extra_keys);
}

obtained_part part_table::obtain(const part_facts& facts) noexcept {
  if (const part_number known = find(facts.hash); known != no_part) {
    if (is_same(known, facts)) return {known, false, std::nullopt};
    // A name of a part that is gone may be given again.
    if (present_places(slots_[known]) != 0 || slots_[known].first_branch != no_part) {
      return {no_part, false, part_refusal::conflict};
    }
    erase(known);
  }
  const bool is_branch = facts.predecessor != no_part;
  if (names_.size() == most_parts || facts.extra_keys.size() > most_list ||
      (is_branch && slots_[facts.predecessor].branches == most_branches)) {
    return {no_part, false, part_refusal::bounds};
  }
  try {
    return {add(facts), true, std::nullopt};
  } catch (const std::bad_alloc&) {
    return {no_part, false, part_refusal::memory};
  }
}

part_number part_table::take_slot() {
  if (first_free_ == no_part) {
    tokens_.resize((slots_.size() + 1) * part_tokens_);
    slots_.emplace_back();
    return static_cast<part_number>(slots_.size() - 1);
  }
  const part_number taken = first_free_;
  first_free_ = slots_[taken].first_branch;
  slots_[taken] = {};
  return taken;
}

part_number part_table::add(const part_facts& facts) {
  const auto [name, is_new] = names_.try_emplace(facts.hash, no_part);
  part_number added = no_part;
  try {
    added = take_slot();
    if (!facts.extra_keys.empty()) {
      lists_.emplace(added, share_vector<std::byte>(facts.extra_keys.begin(), facts.extra_keys.end(),
                                                    share_allocator<std::byte>(lists_.get_allocator())));
    }
  } catch (const std::bad_alloc&) {
    names_.erase(name);
    if (added != no_part) {
      slots_[added] = {.first_branch = std::exchange(first_free_, added), .is_free = true};
    }
    throw;
  }
  name->second = added;
  part_slot& slot = slots_[added];
  slot.hash = facts.hash;
  slot.adapter = facts.adapter;
  slot.parent = facts.parent.value_or(0);
  slot.has_parent = facts.parent.has_value();
  slot.predecessor = facts.predecessor;
  if (facts.predecessor != no_part) {
    part_slot& predecessor = slots_[facts.predecessor];
    slot.position = static_cast<std::uint16_t>(predecessor.position + 1);
    slot.next_branch = std::exchange(predecessor.first_branch, added);
    ++predecessor.branches;
  }
  std::ranges::copy(facts.tokens, tokens_.begin() + static_cast<std::ptrdiff_t>(std::size_t{added} * part_tokens_));
  ++released_;  // nothing holds it yet
  return added;
}

bool part_table::is_path_held(part_number part, part_place place) const noexcept {
  for (; part != no_part; part = slots_[part].predecessor) {
    if (!is_held(part, place)) return false;
  }
  return true;
}

bool part_table::is_complete(part_number last, part_place place) const noexcept {
  return is_last(last) && is_path_held(last, place);
}

std::uint16_t part_table::present_places(const part_slot& slot) const noexcept {
  std::uint16_t present = slot.places;
  for (part_place place = 0; slot.stamp != clears_ && (slot.places >> place) != 0; ++place) {
    if (slot.stamp < cleared_[place]) present = static_cast<std::uint16_t>(present & ~(1U << place));
  }
  return present;
}

// Last parts behind a part, of which all between are in the place. As deep as a block has parts.
std::size_t part_table::append_last(part_number part, part_place place, std::vector<part_number>& ends) const {
  if (is_last(part)) {
    ends.push_back(part);
    return 1;
  }
  std::size_t work = 1;
  for (part_number next = slots_[part].first_branch; next != no_part; next = slots_[next].next_branch) {
    work += is_held(next, place) ? append_last(next, place, ends) : 1;
  }
  return work;
}

std::size_t part_table::hold(part_number part, part_place place, std::vector<part_number>& completed) {
  part_slot& slot = slots_[part];
  if (!is_held(part, place)) ++populations_[place];
  slot.places = static_cast<std::uint16_t>(present_places(slot) | (1U << place));
  slot.stamp = clears_;
  return is_path_held(part, place) ? append_last(part, place, completed) : 1;
}

void part_table::release(part_number part, part_place place, std::vector<part_number>& broken) {
  if (!is_held(part, place)) return;
  if (is_path_held(part, place)) (void)append_last(part, place, broken);
  part_slot& slot = slots_[part];
  slot.places = static_cast<std::uint16_t>(slot.places & ~(1U << place));
  --populations_[place];
  ++released_;
}

void part_table::clear(part_place place) noexcept {
  if (populations_[place] == 0) return;
  cleared_[place] = ++clears_;
  released_ += std::exchange(populations_[place], 0);
}

void part_table::trim() noexcept {
  constexpr std::size_t few = 4096;
  if (released_ < few + names_.size() / 4) return;
  released_ = 0;
  for (part_number i = 0; i < slots_.size(); ++i) {
    part_number unheld = i;
    while (unheld != no_part && !slots_[unheld].is_free && present_places(slots_[unheld]) == 0 &&
           slots_[unheld].first_branch == no_part) {
      const part_number predecessor = slots_[unheld].predecessor;
      erase(unheld);
      unheld = predecessor;
    }
  }
}

void part_table::unlink(part_number part) noexcept {
  part_slot& predecessor = slots_[slots_[part].predecessor];
  --predecessor.branches;
  part_number* next = &predecessor.first_branch;
  while (*next != part) next = &slots_[*next].next_branch;
  *next = slots_[part].next_branch;
}

void part_table::erase(part_number part) noexcept {
  if (slots_[part].predecessor != no_part) unlink(part);
  names_.erase(slots_[part].hash);
  lists_.erase(part);
  slots_[part] = {.first_branch = std::exchange(first_free_, part), .is_free = true};
}

}  // namespace cenote::indexer
