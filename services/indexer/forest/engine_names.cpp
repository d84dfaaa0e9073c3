#include "services/indexer/forest/engine_names.hpp"

#include <algorithm>
#include <new>

namespace cenote::indexer {

engine_names::engine_names(retirement_list& retired, block_store& blocks, std::uint64_t seed)
    : retired_(retired),
      blocks_(blocks),
      seed_(seed),
      unnamed_(spread(seed, ~seed)),
      extra_(budget_allocator<extra_table>(retired.budget())) {
  for (auto& table : parts_) table.emplace(retired, blocks.most_blocks());
}

block_number engine_names::find(name_domain domain, std::uint64_t hash) const noexcept {
  const std::uint64_t mixed = spread(hash, seed_);
  const std::uint32_t block = part(mixed).find(mixed << part_bits, [&](std::uint32_t number) {
    return *blocks_.hashes(number) == hash && blocks_.run(blocks_.owner(number)).domain == domain;
  });
  if (block != number_table::no_number) return block;
  if (domain >= extra_.size()) return no_block;
  const extra_table& table = extra_[domain];
  if (table.slots.empty()) return no_block;
  for (std::size_t at = place(table, hash); table.slots[at].birth != 0;
       at = at + 1 == table.slots.size() ? 0 : at + 1) {
    if (table.slots[at].hash == hash && is_current(table.slots[at])) return table.slots[at].block;
  }
  return no_block;
}

bool engine_names::add(block_number block, std::uint64_t hash) noexcept {
  const std::uint64_t mixed = spread(hash, seed_);
  number_table& table = part(mixed);
  if (!table.has_room()) {
    const auto hash_of = [&](std::uint32_t number) { return spread(*blocks_.hashes(number), seed_) << part_bits; };
    const auto prefetch = [&](std::uint32_t number) { __builtin_prefetch(blocks_.hashes(number)); };
    if (!table.make_room(1, retired_.budget().limit() / 32, hash_of, prefetch)) return false;
  }
  *blocks_.hashes(block) = hash;
  table.insert(mixed << part_bits, block);
  return true;
}

bool engine_names::add_extra(name_domain domain, block_number block, std::uint64_t hash) noexcept {
  try {
    while (extra_.size() <= domain) extra_.emplace_back(retired_.budget());
  } catch (const std::bad_alloc&) {
    return false;
  }
  extra_table& table = extra_[domain];
  if (!make_room(table)) return false;
  std::size_t at = place(table, hash);
  while (table.slots[at].birth != 0) at = at + 1 == table.slots.size() ? 0 : at + 1;
  table.slots[at] = {hash, block, blocks_.record(blocks_.owner(block)).birth};
  ++table.occupied;
  return true;
}

void engine_names::erase(block_number block) noexcept {
  const std::uint64_t hash = *blocks_.hashes(block);
  if (hash == unnamed_) return;
  const std::uint64_t mixed = spread(hash, seed_);
  part(mixed).erase(mixed << part_bits, block);
}

void engine_names::erase_extra(name_domain domain) noexcept {
  if (domain >= extra_.size()) return;
  extra_table empty(retired_.budget());
  extra_[domain].slots.swap(empty.slots);
  extra_[domain].occupied = 0;
}

void engine_names::prefetch_block(std::uint64_t hash) const noexcept {
  const std::uint64_t mixed = spread(hash, seed_);
  (void)part(mixed).find(mixed << part_bits, [&](std::uint32_t number) {
    __builtin_prefetch(blocks_.hashes(number));
    __builtin_prefetch(blocks_.owner_address(number));
    return true;
  });
}

std::size_t engine_names::size() const noexcept {
  std::size_t sum = 0;
  for (const auto& table : parts_) sum += table->size();
  for (const extra_table& table : extra_) {
    sum += static_cast<std::size_t>(
        std::ranges::count_if(table.slots, [&](const extra_name& name) { return is_current(name); }));
  }
  return sum;
}

bool engine_names::is_current(const extra_name& name) const noexcept {
  if (name.birth == 0) return false;
  const std::uint32_t run = blocks_.run_of(name.block);
  return run != no_run && blocks_.record(run).birth == name.birth;
}

std::size_t engine_names::place(const extra_table& table, std::uint64_t hash) const noexcept {
  __extension__ using wide = unsigned __int128;
  return static_cast<std::size_t>((wide{spread(hash, seed_)} * table.slots.size()) >> 64);
}

bool engine_names::make_room(extra_table& table) noexcept {
  if (table.occupied < table.slots.size() - table.slots.size() / 5) return true;
  const auto current = static_cast<std::size_t>(
      std::ranges::count_if(table.slots, [&](const extra_name& name) { return is_current(name); }));
  extra_table next(retired_.budget());
  try {
    next.slots.resize(std::max<std::size_t>(16, current + current / 2 + current / 4));
  } catch (const std::bad_alloc&) {
    return false;
  }
  for (const extra_name& name : table.slots) {
    if (!is_current(name)) continue;
    std::size_t at = place(next, name.hash);
    while (next.slots[at].birth != 0) at = at + 1 == next.slots.size() ? 0 : at + 1;
    next.slots[at] = name;
  }
  next.occupied = current;
  table.slots.swap(next.slots);
  table.occupied = current;
  return true;
}

}  // namespace cenote::indexer
