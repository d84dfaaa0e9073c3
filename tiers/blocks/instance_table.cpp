#include "tiers/blocks/instance_table.hpp"

#include <algorithm>

#include "core/stored_identity.hpp"
#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/eviction_order.hpp"
#include "tiers/blocks/session_lookups.hpp"
#include "tiers/blocks/slab_space.hpp"

namespace cenote::blocks {

/// Of two with one spec, as a worker's death may leave, the newer one has the sessions.
const instance* instance_table::same_spec(const instance_spec& spec) const {
  const instance* newest = nullptr;
  const auto [first, last] = state_.by_id.equal_range(spec.id);
  for (auto each = first; each != last; ++each) {
    const bool is_newer = newest == nullptr || each->second->number > newest->number;
    if (is_newer && each->second->spec == spec) newest = each->second;
  }
  return newest;
}

/// An instance with another spec keeps the id from its own user and instance group alone, since for these the
/// difference is a mistake; what others use under that id is another instance.
result<std::optional<instance_number>> instance_table::find_instance(const instance_spec& spec,
                                                                     std::uint32_t owner) const {
  if (const instance* const same = same_spec(spec)) return same->number;
  const auto [first, last] = state_.by_id.equal_range(spec.id);
  for (auto each = first; each != last; ++each) {
    const instance& other = *each->second;
    const bool is_own = other.owner == owner && other.spec.instance_group == spec.instance_group;
    if (!is_own) continue;
    return fail(error_code::spec_mismatch, "instance `" + spec.id + "` exists with another spec; " +
                                               first_difference(other.spec, spec).value_or("another one"));
  }
  return std::nullopt;
}

result<void> instance_table::check_fits(const instance_spec& spec) const {
  for (const group_spec& group : spec.groups) {
    slab_description smallest;
    smallest.stride = group.stride();
    smallest.count = blocks_per_slab(state_.options.capacity, smallest.stride, state_.options.slab_bytes);
    const std::uint64_t usable = state_.options.capacity / smallest.segment_bytes() * smallest.segment_bytes();
    if (usable == 0) {
      return fail(error_code::invalid_argument,
                  "a block of group `" + group.name + "` has " + std::to_string(group.block_bytes()) +
                      " bytes; dram.capacity is only " + std::to_string(state_.options.capacity));
    }
    // One that is cached and a blank one for the next put must stay below the mark, or what was put goes at once.
    const std::uint64_t least = smallest.stride * (state_.options.grants_in_capacity ? 2 : 1);
    if (state_.options.high_water < 1.0 && least > share_of(usable, state_.options.high_water)) {
      return fail(error_code::invalid_argument,
                  "a block of group `" + group.name + "` has " + std::to_string(group.block_bytes()) +
                      " bytes: of a dram.capacity of " + std::to_string(state_.options.capacity) + " bytes, with " +
                      std::to_string(usable / smallest.stride) +
                      " such blocks, dram.high_water would let none stay; make dram.capacity three times a block");
    }
  }
  return {};
}

/// As long as there are not too many. The instance is in the table, as its blocks bound what is usable.
void instance_table::set_watch(pool& group) {
  if (state_.options.watch == request_watch::none) return;
  const auto is_watched = [](const auto& each) { return each.second->pools.front()->watched_room != 0; };
  if (static_cast<std::size_t>(std::ranges::count_if(state_.instances, is_watched)) >= most_watched) return;
  group.watched_room = std::max<std::uint64_t>(state_.usable_bytes() / group.stride, 1);
}

instance& instance_table::make_instance(instance_number number, const instance_spec& spec, memory::index_writer index,
                                        memory::version_table versions, std::uint32_t owner) {
  auto made = std::make_unique<instance>(std::move(index), std::move(versions));
  made->number = number;
  made->owner = owner;
  ++made_by_[owner];
  made->spec = spec;
  made->identity = identity_of(spec);
  made->payer = &accounts_.open_account(spec, owner);
  for (std::uint32_t g = 0; g < spec.groups.size(); ++g) {
    auto group = std::make_unique<pool>();
    group->owner = made.get();
    group->group = g;
    group->stride = spec.groups[g].stride();
    group->block_bytes = spec.groups[g].block_bytes();
    group->all_parts = spec.groups[g].all_parts();
    group->blocks_per_slab = blocks_per_slab(state_.options.capacity, group->stride, state_.options.slab_bytes);
    order_.equip(*group);
    made->pools.push_back(std::move(group));
  }
  instance& kept = *made;
  if (state_.options.has_lower()) unbound_.push_back(number);
  state_.records.note_instance(number);
  state_.by_id.emplace(spec.id, &kept);
  state_.instances.emplace(number, std::move(made));
  set_watch(*kept.pools.front());
  return kept;
}

result<void> instance_table::add_instance(instance_number number, const instance_spec& spec, memory::index_writer index,
                                          memory::version_table versions, boot_time now, std::uint32_t owner) {
  if (state_.instances.contains(number) || same_spec(spec) != nullptr) {
    return fail(error_code::internal, "instance `" + spec.id + "` was added twice");
  }
  instance& made = make_instance(number, spec, std::move(index), std::move(versions), owner);
  begin_idle(made, now);
  claim_instance(number, now);
  // The first put then finds a slab; later ones are asked for ahead of need.
  for (const auto& group : made.pools) {
    if (space_.slab_fits(*group)) space_.ask_slab(*group, {});
  }
  return {};
}

void instance_table::set_share(instance_number number, std::shared_ptr<const instance_share> share) {
  const auto found = state_.instances.find(number);
  if (found != state_.instances.end()) found->second->share = std::move(share);
}

std::optional<std::pair<unique_fd, unique_fd>> instance_table::descriptors(instance_number number) const {
  const auto found = state_.instances.find(number);
  if (found == state_.instances.end()) return std::nullopt;
  auto index = found->second->index.file().read_only_descriptor();
  auto versions = found->second->versions.file().read_only_descriptor();
  if (!index || !versions) return std::nullopt;
  return std::pair(std::move(*index), std::move(*versions));
}

std::optional<memory::slab_place> instance_table::slab_place_of(instance_number number, std::uint32_t index) const {
  const auto found = state_.instances.find(number);
  if (found == state_.instances.end()) return std::nullopt;
  const auto home = found->second->slabs.find(index);
  if (home == found->second->slabs.end()) return std::nullopt;
  const slab_description& what = home->second->what;
  return memory::slab_place{.index = index,
                            .count = what.count,
                            .stride = what.stride,
                            .memory = home->second->memory.data(),
                            .records = &state_.records[what.first_record]};
}

std::optional<std::pair<unique_fd, std::uint64_t>> instance_table::slab_descriptor(instance_number number,
                                                                                   std::uint32_t index) const {
  const auto found = state_.instances.find(number);
  if (found == state_.instances.end()) return std::nullopt;
  const auto home = found->second->slabs.find(index);
  if (home == found->second->slabs.end()) return std::nullopt;
  auto copy = home->second->memory.fd().duplicate();
  if (!copy) return std::nullopt;
  return std::pair(std::move(*copy), home->second->memory.size());
}

void instance_table::claim_instance(instance_number number, boot_time now) noexcept {
  const auto found = state_.instances.find(number);
  if (found != state_.instances.end()) found->second->claimed_until = now + state_.options.life.claim;
}

/// The time lies in the version table's header: it goes on when a worker is replaced.
void instance_table::begin_idle(instance& instance, boot_time now) noexcept {
  instance.versions.set_idle_since(std::max(now, boot_time_of(1)));
}

std::uint32_t instance_table::made_by(std::uint32_t owner) const noexcept {
  const auto found = made_by_.find(owner);
  return found == made_by_.end() ? 0 : found->second;
}

std::vector<instance_binding> instance_table::take_bindings() {
  std::vector<instance_binding> bindings;
  for (const instance_number number : std::exchange(unbound_, {})) {
    const instance& in = *state_.instances.at(number);
    auto fd = in.index.file().fd().duplicate();
    auto index = fd ? memory::shared_file::adopt(std::move(*fd), memory::index_segment_bytes)
                    : result<memory::shared_file>(std::unexpected(fd.error()));
    if (index)
      bindings.push_back({number, in.spec, in.share, std::move(*index)});
    else
      unbound_.push_back(number);  // no descriptor is free: the next call tries again
  }
  return bindings;
}

void instance_table::erase(instance_number number) {
  const auto found = state_.instances.find(number);
  const instance& gone = *found->second;
  for (account* each = gone.payer; each != nullptr; each = each->parent)
    add_hits(each->past_hits, uncredited(gone.past_lookups, gone), gone.spec.tokens_per_block);
  std::erase(unbound_, number);
  std::erase_if(state_.by_id, [&](const auto& each) { return each.second == &gone; });
  given_up_.push_back(number);
  if (--made_by_[gone.owner] == 0) made_by_.erase(gone.owner);
  state_.instances.erase(found);
}

}  // namespace cenote::blocks
