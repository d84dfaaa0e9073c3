#include "tiers/blocks/slab_space.hpp"

#include <algorithm>
#include <utility>

#include "memory/store_point.hpp"
#include "tiers/blocks/eviction_order.hpp"

namespace cenote::blocks {

using memory::block_ref;
using memory::block_state;

std::uint64_t slab_space::memory_limit() const noexcept {
  if (state_.options.grants_in_capacity) return state_.options.capacity;
  // Beside the cached blocks: what grant_share() lets sessions hold, and the last slab's rest.
  std::uint64_t largest = 0;
  for (const auto& [number, each] : state_.instances) {
    for (const auto& group : each->pools) {
      largest = std::max(largest, group->stride * group->blocks_per_slab + memory::page_bytes);
    }
  }
  return state_.options.capacity + state_.options.capacity / 8 + 2 * largest;
}

bool slab_space::slab_fits(const pool& into) const noexcept {
  return state_.assigned + into.stride * into.blocks_per_slab + memory::page_bytes <= memory_limit();
}

bool slab_space::ask_slab(pool& into, boot_time now) {
  instance& in = *into.owner;
  if (now != boot_time{} && memory_is_short(now)) return false;
  // Numbers that the old worker gave away and took back are not in the registry any more, but clients remember them.
  const auto used = [&](std::uint32_t index) {
    const memory::slab_entry* entry = in.versions.slab(index);
    return entry != nullptr &&
           entry->state.load(std::memory_order_relaxed) != static_cast<std::uint32_t>(memory::slab_state::none);
  };
  while (in.next_slab < block_ref::max_slabs && used(in.next_slab)) ++in.next_slab;
  if (in.next_slab >= block_ref::max_slabs) return false;
  slab_description what;
  what.instance = in.number;
  what.group = into.group;
  what.count = into.blocks_per_slab;
  what.stride = into.stride;
  const auto records = state_.record_ranges.allocate(what.count);
  if (!records) return false;
  const auto versions = in.version_ranges.allocate(what.count);
  if (!versions) {
    state_.record_ranges.release(*records, what.count);
    return false;
  }
  if (!in.versions.make_room(in.next_slab, *versions, what.count) || !make_index_room(in, what.count)) {
    state_.record_ranges.release(*records, what.count);
    in.version_ranges.release(*versions, what.count);
    return false;
  }
  if (state_.took_over) blank_records(*records, what.count);
  what.index = in.next_slab++;
  what.first_record = *records;
  what.first_version = *versions;
  state_.assigned += what.segment_bytes();
  ++into.slabs_asked;
  requests_.push_back({slab_request::kind::create, what, {}, {}});
  return true;
}

/// Address space for the index of all blocks that the instance has, and `more`: a block that is stored is always found.
bool slab_space::make_index_room(const instance& instance, std::uint64_t more) const {
  std::uint64_t blocks = more;
  for (const auto& group : instance.pools) {
    blocks += (group->slabs.size() + group->slabs_asked) * group->blocks_per_slab;
  }
  return instance.index.make_room_for(blocks).has_value();
}

/// A slab that could not be taken over left its records as they were: they must be nobody's before the keeper hears of
/// their new slab.
void slab_space::blank_records(std::uint32_t first, std::uint32_t count) {
  for (std::uint32_t number = first; number < first + count; ++number) {
    memory::block_record& record = state_.records[number];
    if (record.state() != block_state::free) record.set_state(block_state::free, "records.orphan_freed"_point);
  }
}

/// A slab could not be made a moment ago.
bool slab_space::memory_is_short(boot_time now) noexcept {
  if (no_memory_until_ && is_due(*no_memory_until_, now)) no_memory_until_.reset();
  return no_memory_until_.has_value();
}

/// Clients know slabs by their numbers, and map each of them once: a number is used again only when no client of the
/// instance is there who could know it.
void slab_space::renumber_slabs(instance& instance) noexcept {
  if (!instance.sessions.empty() || instance.next_slab < block_ref::max_slabs / 2) return;
  constexpr auto free_number = static_cast<std::uint32_t>(memory::slab_state::none);
  for (std::uint32_t index = 1; index < std::min(instance.next_slab, block_ref::max_slabs); ++index) {
    memory::slab_entry* entry = instance.versions.slab(index);
    if (entry == nullptr) break;
    auto& state = entry->state;
    if (state.load(std::memory_order_relaxed) != static_cast<std::uint32_t>(memory::slab_state::retired)) continue;
    state.store(free_number, std::memory_order_release);
  }
  instance.next_slab = 1;
}

std::vector<std::span<std::byte>> slab_space::slab_memory() const {
  std::vector<std::span<std::byte>> all;
  for (const auto& [number, in] : state_.instances) {
    for (const auto& [index, each] : in->slabs) all.emplace_back(each->memory.data(), each->memory.size());
  }
  return all;
}

std::vector<slab_request> slab_space::take_requests() {
  return std::exchange(requests_, {});
}

slab& slab_space::adopt_slab(instance& instance, const slab_description& what, memory::slab_mapping memory) {
  auto made = std::make_unique<slab>();
  made->what = what;
  made->memory = std::move(memory);
  made->owner = &instance;
  slab& kept = *made;
  instance.slabs.emplace(what.index, std::move(made));
  instance.pools[what.group]->slabs.push_back(&kept);
  state_.by_record.emplace(what.first_record, &kept);
  order_.cover(what.first_record + what.count);
  memory::slab_entry& entry = *instance.versions.slab(what.index);
  memory::shared_assign(entry.first_version, what.first_version, "adopt_slab.first_version"_point);
  memory::shared_assign(entry.count, what.count, "adopt_slab.count"_point);
  memory::shared_assign(entry.stride, what.stride, "adopt_slab.stride"_point);
  memory::shared_assign(entry.group, what.group, "adopt_slab.group"_point);
  memory::shared_store(entry.state, static_cast<std::uint32_t>(memory::slab_state::live), std::memory_order_release,
                       "adopt_slab.live"_point);
  return kept;
}

bool slab_space::add_slab(const slab_description& what, memory::slab_mapping memory) {
  const auto home = state_.instances.find(what.instance);
  if (home == state_.instances.end()) return false;
  instance& in = *home->second;
  adopt_slab(in, what, std::move(memory));
  pool& into = *in.pools[what.group];
  if (into.slabs_asked > 0) --into.slabs_asked;
  // Below those that are free: until these are taken, clients map the new slab and have their devices know it.
  std::vector<memory::block_ref> blank;
  for (std::uint32_t b = what.count; b > 0; --b) blank.emplace_back(what.index, b - 1);
  into.free.insert(into.free.begin(), blank.begin(), blank.end());
  return true;
}

void slab_space::slab_failed(const slab_description& what, boot_time retry_at) {
  state_.assigned -= std::min(state_.assigned, what.segment_bytes());
  no_memory_until_ = retry_at;
  const auto home = state_.instances.find(what.instance);
  if (home != state_.instances.end()) {
    pool& into = *home->second->pools[what.group];
    if (into.slabs_asked > 0) --into.slabs_asked;
  }
  slab_dropped(what);
}

void slab_space::slab_dropped(const slab_description& what) {
  state_.record_ranges.release(what.first_record, what.count);
  const auto home = state_.instances.find(what.instance);
  if (home != state_.instances.end()) home->second->version_ranges.release(what.first_version, what.count);
}

void slab_space::drop_slab(slab& victim) {
  instance& in = *victim.owner;
  memory::shared_store(in.versions.slab(victim.what.index)->state,
                       static_cast<std::uint32_t>(memory::slab_state::retired), std::memory_order_release,
                       "drop_slab.retired"_point);
  state_.assigned -= std::min(state_.assigned, victim.what.segment_bytes());
  std::erase(pool_of(victim).slabs, &victim);
  state_.by_record.erase(victim.what.first_record);
  requests_.push_back({slab_request::kind::drop, victim.what, std::move(victim.memory), {}});
  in.slabs.erase(victim.what.index);
}

}  // namespace cenote::blocks
