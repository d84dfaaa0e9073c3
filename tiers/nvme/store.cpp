#include "tiers/nvme/store.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <span>

#include "core/stored_identity.hpp"

namespace cenote::nvme {

namespace {

/// Policies count tenths of a second, and let them go around.
constexpr std::uint32_t policy_time(wall_time time) noexcept {
  return count_of(time) * 10;
}

constexpr std::uint64_t min_extent = std::uint64_t{4} << 20;
constexpr std::uint64_t max_extent = std::uint64_t{256} << 20;
constexpr std::size_t most_instances = std::size_t{std::numeric_limits<std::uint16_t>::max()} + 1;
constexpr int eviction_attempts = 64;          // for one slot; more means that everything is being read
constexpr std::size_t fewest_tried_again = 8;  // slots without space, a tick: twice as many while none is refused
constexpr std::uint32_t expiry_step = 65'536;  // entries looked at in one go: under a millisecond
constexpr std::size_t seen_places = 1U << 20;  // 4 MiB: blocks that second sight remembers

std::uint32_t sectors_of(std::uint64_t bytes) noexcept {
  return static_cast<std::uint32_t>(bytes / sector_bytes);
}

std::uint64_t offset_of(const block_entry& entry) noexcept {
  return std::uint64_t{entry.sector} * sector_bytes;
}

std::uint64_t bytes_of(const block_entry& entry) noexcept {
  return std::uint64_t{entry.sectors} * sector_bytes;
}

}  // namespace

std::optional<adopted_block> adopted_from(const stored_block& block) noexcept {
  if (block.bytes == 0 || block.bytes % sector_bytes != 0 || block.offset % sector_bytes != 0 ||
      block.full.size < min_key_bytes || block.full.size > max_key_bytes ||
      block.key != reduce_key(block.full.view(), block.group)) {
    return std::nullopt;
  }
  return adopted_block{block.key, block.offset, block.checksum, sectors_of(block.bytes), block.touch, 0};
}

store::store(store_options options) : options_(std::move(options)), paths_(options_.paths), instances_(1) {
  if (options_.second_sight) seen_.resize(seen_places);
}

store::~store() = default;

// ---------------------------------------------------------------------------------------------- instances

/// Entries name an instance by 16 bits. Nothing when all of them are taken.
std::optional<std::uint16_t> store::instance_of(instance_identity identity) {
  if (const auto found = by_identity_.find(identity); found != by_identity_.end()) return found->second;
  std::uint16_t number = 0;
  if (instances_.size() < most_instances) {
    number = static_cast<std::uint16_t>(instances_.size());
    instances_.emplace_back();
  } else {
    if (unused_instances_.empty()) find_unused_instances();
    if (unused_instances_.empty()) return std::nullopt;
    number = unused_instances_.back();
    unused_instances_.pop_back();
    instances_[number] = {};
  }
  instances_[number].identity = identity;
  by_identity_.emplace(identity, number);
  return number;
}

/// No session is attached to them, and nothing of them is on its way.
std::vector<std::uint16_t> store::idle_instances() const {
  std::vector<bool> named(instances_.size());
  for (const auto& [tag, each] : operations_) named[each.instance] = true;
  std::vector<std::uint16_t> idle;
  for (std::size_t i = 1; i < instances_.size(); ++i) {
    if (!named[i] && instances_[i].number == 0) idle.push_back(static_cast<std::uint16_t>(i));
  }
  return idle;
}

/// Those of them that have no block, either.
void store::find_unused_instances() {
  if (std::exchange(none_unused_, true)) return;
  for (const std::uint16_t each : idle_instances()) {
    if (instances_[each].blocks != 0) continue;
    by_identity_.erase(instances_[each].identity);
    unused_instances_.push_back(each);
    none_unused_ = false;
  }
}

/// The idle instances with the fewest blocks leave when all numbers are taken: whoever makes instances by the thousand,
/// which takes the numbers from others, has these.
void store::evict_smallest_instances() {
  constexpr std::size_t at_once = 256;  // one look at all entries for that many
  auto idle = idle_instances();
  if (idle.empty()) return;
  const auto few = static_cast<std::ptrdiff_t>(std::min(at_once, idle.size()));
  std::ranges::partial_sort(idle, idle.begin() + few, {}, [&](std::uint16_t each) { return instances_[each].blocks; });
  std::vector<bool> leaves(instances_.size());
  for (const std::uint16_t each : std::span(idle).first(static_cast<std::size_t>(few))) leaves[each] = true;
  for (std::uint32_t entry = 0; entry < entries_.end(); ++entry) {
    if (entries_[entry].sectors == 0 || !leaves[entries_[entry].instance]) continue;
    ++counters_.evicted;
    erase(entry, true, true);
  }
}

std::optional<std::uint16_t> store::bound(instance_number number) const noexcept {
  const auto found = by_number_.find(number);
  return found == by_number_.end() ? std::nullopt : std::optional(found->second);
}

bool store::bind(instance_number number, instance_identity identity, memory::hint_writer hints) {
  auto found = instance_of(identity);
  if (!found) {
    evict_smallest_instances();
    found = instance_of(identity);
  }
  if (!found) return false;
  const std::uint16_t which = *found;
  if (instances_[which].number != 0) block_changes_.end_instance(instances_[which].number);
  instances_[which].number = number;
  instances_[which].hints = std::move(hints);
  by_number_[number] = which;
  for (std::uint32_t entry = 0; entry < entries_.end(); ++entry) {
    if (entries_[entry].sectors != 0 && entries_[entry].instance == which) show(entry, true);
  }
  return true;
}

void store::unbind(instance_number number) {
  const auto which = bound(number);
  if (!which) return;
  by_number_.erase(number);
  instance_entry& left = instances_[*which];
  if (left.number != number) return;  // bound again meanwhile
  block_changes_.end_instance(number);
  left.number = 0;
  left.hints = {};
  none_unused_ = false;
  note_if_unused(*which);
}

/// Nothing of it is here or on its way, and nobody is attached to it.
bool store::is_unused(instance_identity identity) const {
  const auto found = by_identity_.find(identity);
  if (found == by_identity_.end()) return true;
  const instance_entry& each = instances_[found->second];
  const auto names_it = [&](const auto& of) { return of.second.instance == found->second; };
  return each.number == 0 && each.blocks == 0 && std::ranges::none_of(operations_, names_it);
}

void store::note_if_unused(std::uint16_t instance) {
  const instance_entry& each = instances_[instance];
  if (each.number == 0 && each.blocks == 0) nameless_.insert(each.identity);
}

/// Of a path that was never opened nobody knows what it holds.
void store::forget_names() {
  if (std::ranges::any_of(paths_, [](const path_entry& each) { return !each.slots; })) return;
  for (const instance_identity& identity : std::exchange(nameless_, {})) {
    if (!is_unused(identity)) continue;
    note_everywhere(catalog_change::kind::erase_name, identity);
    forgotten_.push_back(identity);
  }
}

void store::set_ttl(instance_number number, wall_seconds ttl) noexcept {
  if (const auto which = bound(number)) instances_[*which].ttl = ttl;
}

result<void> store::set_policy(const std::string& name) {
  if (name == options_.policy) return {};
  if (auto known = eviction::make_policy(name, links_); !known) return std::unexpected(known.error());
  options_.policy = name;
  for (auto& [bytes, each] : classes_) {
    const auto old = std::exchange(each.policy, std::move(*eviction::make_policy(name, links_)));
    while (const auto next = old->victim()) {
      old->forget(*next);
      each.policy->insert(*next, entries_[*next].key_lo, policy_time(entries_[*next].touch));
    }
  }
  return {};
}

bool store::is_found(const block_entry& entry) const noexcept {
  return instances_[entry.instance].number != 0 && paths_[entry.path].state == path_state::serving;
}

/// Every entry that can be found from now on, or no more, passes here.
void store::show(std::uint32_t entry, bool visible) {
  const block_entry& shown = entries_[entry];
  if (!is_found(shown)) return;
  instance_entry& owner = instances_[shown.instance];
  if (visible) {
    owner.hints.add(shown.key());
  } else {
    owner.hints.erase(shown.key());
  }
  if (block_changes_.has_readers()) note_change(entry, visible ? tier_change_kind::stored : tier_change_kind::removed);
}

void store::note_change(std::uint32_t entry, tier_change_kind kind) {
  const auto key = keys_.find(entry);
  if (!key) return;
  const instance_number owner = instances_[entries_[entry].instance].number;
  if (kind == tier_change_kind::stored)
    block_changes_.stored(entry, owner, key->group, key->full);
  else
    block_changes_.removed(entry, owner, key->group, key->full);
}

block_place store::list(block_place first, std::size_t steps, std::vector<tier_change>& blocks) const {
  const block_place end = entries_.end();
  const block_place stop = first + std::min<block_place>(steps, end - std::min(first, end));
  for (block_place at = first; at < stop; ++at) {
    const auto number = static_cast<std::uint32_t>(at);
    const block_entry& each = entries_[number];
    if (each.sectors == 0 || !is_found(each)) continue;
    if (const auto key = keys_.find(number))
      blocks.push_back({tier_change_kind::stored, instances_[each.instance].number, key->group, key->full});
  }
  return stop < end ? stop : end_of_places;
}

// ---------------------------------------------------------------------------------------------- paths

void store::open_path(std::uint32_t path, std::uint64_t first, std::uint64_t end, std::uint64_t max_blocks) {
  path_entry& opened = paths_[path];
  // A power of two, so that slots stay where they are when the capacity changes a little.
  const std::uint64_t extent = std::clamp(std::bit_floor((end - first) / 64), min_extent, max_extent);
  opened.slots = std::make_unique<slot_allocator>(first, end, extent);
  opened.first = first;
  opened.max_blocks = max_blocks;
  opened.state = path_state::serving;
}

store::size_class& store::class_of(std::uint64_t bytes) {
  size_class& found = classes_[bytes];
  if (!found.policy) found.policy = std::move(*eviction::make_policy(options_.policy, links_));
  return found;
}

bool store::adopt(std::uint32_t path, const adopted_block& block, const instance_identity& owner,
                  const std::optional<entry_key>& key) {
  path_entry& home = paths_[path];
  const std::uint64_t bytes = std::uint64_t{block.sectors} * sector_bytes;
  const bool sane = home.slots && home.blocks < home.max_blocks;
  const auto refuse = [&] {
    ++counters_.refused_at_load;
    note_erased(path, owner, block.key);
    return false;
  };
  if (!sane) return refuse();
  const auto known = instance_of(owner);
  if (!known) return refuse();
  const std::uint16_t instance = *known;
  if (entries_.find(instance, block.key) || !home.slots->claim(block.offset, bytes)) return refuse();
  const std::uint32_t entry = entries_.add({.key_hi = block.key.hi,
                                            .key_lo = block.key.lo,
                                            .checksum = block.checksum,
                                            .sector = sectors_of(block.offset),
                                            .sectors = block.sectors,
                                            .touch = block.touch,
                                            .instance = instance,
                                            .path = static_cast<std::uint8_t>(path)});
  links_.cover(entry + 1);
  class_of(bytes).policy->insert(entry, block.key.lo, policy_time(block.touch));
  ++home.blocks;
  ++instances_[instance].blocks;
  ++counters_.loaded;
  if (options_.keeps_keys && key) keys_.set(entry, key->group, key->full);
  show(entry, true);
  return true;
}

void store::path_failed(std::uint32_t path, std::string why) {
  leave_service(path, path_state::failed);
  paths_[path].status.why = std::move(why);
}

void store::leave_service(std::uint32_t path, path_state state) {
  path_entry& home = paths_[path];
  const bool served = home.state == path_state::serving;
  for (std::uint32_t entry = 0; served && entry < entries_.end(); ++entry) {
    const block_entry& gone = entries_[entry];
    if (gone.sectors == 0 || gone.path != path) continue;
    show(entry, false);
    class_of(bytes_of(gone)).policy->forget(entry);  // evicting it would free no usable slot
    if (instances_[gone.instance].number != 0) lost_.push_back({instances_[gone.instance].number, gone.key()});
  }
  home.state = state;
}

void store::note_error(std::uint32_t path, int error) {
  path_entry& home = paths_[path];
  ++counters_.io_errors;
  ++home.status.errors;
  home.status.why = std::strerror(error);
  if (++home.errors_in_a_row < options_.errors_to_retire || home.state != path_state::serving) return;
  leave_service(path, path_state::retired);
}

/// A path whose writes fail stays in service, since its blocks may still be readable: only failed reads retire it.
void store::note_write_error(const operation& transfer, int error) {
  path_entry& home = paths_[transfer.path];
  ++home.status.errors;
  home.status.why = std::strerror(error);
  if (error == ENOSPC) {  // the file system lacks space that it had reserved: the tier gets smaller by this slot
    home.bad.emplace_back(transfer.offset, transfer.what.memory.size());
    home.try_again = fewest_tried_again;
    home.status.bad_bytes += transfer.what.memory.size();
    return;
  }
  ++counters_.io_errors;
  home.status.takes_writes = false;
}

/// Makes slots without space allocatable again: the next write into one shows whether there is space now.
void store::give_back_bad_slots(path_entry& to, std::size_t count) {
  for (; count > 0 && !to.bad.empty(); --count) {
    to.slots->release(to.bad.back().first);
    to.status.bad_bytes -= to.bad.back().second;
    to.bad.pop_back();
  }
}

void store::restore_path(std::uint32_t path) {
  if (paths_[path].state != path_state::retired) return;
  paths_[path].state = path_state::serving;
  paths_[path].errors_in_a_row = 0;
  std::vector<std::uint32_t> back;
  for (std::uint32_t entry = 0; entry < entries_.end(); ++entry) {
    if (entries_[entry].sectors != 0 && entries_[entry].path == path) back.push_back(entry);
  }
  std::ranges::sort(back, {}, [&](std::uint32_t entry) { return entries_[entry].touch; });
  for (const std::uint32_t entry : back) {
    class_of(bytes_of(entries_[entry]))
        .policy->insert(entry, entries_[entry].key_lo, policy_time(entries_[entry].touch));
    show(entry, true);
  }
}

/// A probe reads one sector: a retired path that fails it stays out of service.
void store::tick(wall_time now) {
  expire(now);
  forget_names();
  for (std::uint32_t path = 0; path < paths_.size(); ++path) {
    path_entry& each = paths_[path];
    each.trial = !each.status.takes_writes;
    if (each.slots && !each.bad.empty()) {
      give_back_bad_slots(each, each.try_again);
      each.try_again *= 2;
    }
    if (each.state != path_state::retired || each.probe != 0) continue;
    if (!probed_) probed_.reset(static_cast<std::byte*>(std::aligned_alloc(sector_bytes, sector_bytes)));
    each.probe = next_tag_++;
    requests_.push_back({path, {io_kind::read, each.first, {probed_.get(), sector_bytes}, each.probe, false}});
  }
}

/// Looks at a part of all blocks a call.
void store::expire(wall_time now) {
  const bool any =
      std::ranges::any_of(instances_, [](const instance_entry& each) { return each.ttl != wall_seconds{}; });
  if (!any) return;
  if (expiry_at_ >= entries_.end()) expiry_at_ = 0;
  const std::uint32_t stop = std::min(entries_.end(), expiry_at_ + expiry_step);
  for (; expiry_at_ < stop; ++expiry_at_) {
    const block_entry& each = entries_[expiry_at_];
    if (each.sectors == 0) continue;
    const wall_seconds ttl = instances_[each.instance].ttl;
    if (ttl == wall_seconds{} || now - std::min(now, each.touch) < ttl) continue;
    ++counters_.expired;
    erase(expiry_at_, true);
  }
}

// ---------------------------------------------------------------------------------------------- space

/// True of a path that refuses writes while another one takes them: freeing slots on it makes no room.
bool store::is_useless(std::uint32_t path) const noexcept {
  if (paths_[path].status.takes_writes) return false;
  return std::ranges::any_of(
      paths_, [](const path_entry& each) { return each.state == path_state::serving && each.status.takes_writes; });
}

std::optional<std::pair<std::uint32_t, std::uint64_t>> store::free_slot(std::uint64_t bytes) {
  for (std::size_t tried = 0; tried < paths_.size(); ++tried) {
    const std::uint32_t path = next_path_;
    next_path_ = (next_path_ + 1) % static_cast<std::uint32_t>(paths_.size());
    path_entry& from = paths_[path];
    if (from.state != path_state::serving || from.blocks >= from.max_blocks) continue;
    if (is_useless(path) && !from.trial) continue;
    if (const auto offset = from.slots->allocate(bytes)) {
      if (!from.status.takes_writes) from.trial = false;
      return std::pair(path, *offset);
    }
  }
  return std::nullopt;
}

/// Evicts the oldest block of a class that is not being read. False: there is none.
bool store::evict_one(size_class& bin) {
  for (int attempt = 0; attempt < eviction_attempts; ++attempt) {
    const auto victim = bin.policy->victim();
    if (!victim) return false;
    if (entries_[*victim].readers == 0 && !is_useless(entries_[*victim].path)) {
      ++counters_.evicted;
      erase(*victim, true, true);
      return true;
    }
    bin.policy->skip_victim(*victim, policy_time(entries_[*victim].touch));
  }
  return false;
}

/// Empties the extent with the fewest blocks among those of other lengths. False: each has a block that is being read
/// or written, or there is none.
bool store::free_extent(std::uint64_t bytes) {
  for (std::uint32_t path = 0; path < paths_.size(); ++path) {
    if (paths_[path].state != path_state::serving || is_useless(path)) continue;
    const auto extent = paths_[path].slots->emptiest_extent(bytes);
    if (!extent) continue;
    std::vector<std::uint64_t> offsets = paths_[path].slots->slots_of_extent(*extent);
    std::ranges::sort(offsets);
    std::vector<std::uint32_t> victims;
    for (std::uint32_t entry = 0; entry < entries_.end(); ++entry) {
      const block_entry& each = entries_[entry];
      const bool inside = each.sectors != 0 && each.path == path && each.readers == 0 &&
                          std::ranges::binary_search(offsets, offset_of(each));
      if (inside) victims.push_back(entry);
    }
    if (victims.size() != offsets.size()) continue;
    for (const std::uint32_t victim : victims) erase(victim, true);
    counters_.evicted += victims.size();
    return true;
  }
  return false;
}

/// The class whose next victim was used longest ago, and when; null when none has a victim.
std::pair<store::size_class*, wall_time> store::oldest_class(std::uint64_t excluded_bytes) {
  std::pair<size_class*, wall_time> oldest{nullptr, wall_time{}};
  for (auto& [length, each] : classes_) {
    const auto victim = each.policy->victim();
    if (length == excluded_bytes || !victim) continue;
    if (oldest.first == nullptr || entries_[*victim].touch < oldest.second) oldest = {&each, entries_[*victim].touch};
  }
  return oldest;
}

void store::evict_ahead() {
  if (options_.high_water >= 1.0) return;
  const auto sum = [this](auto of) {
    std::uint64_t bytes = 0;
    for (const path_entry& each : paths_) bytes += each.state == path_state::serving ? of(*each.slots) : 0;
    return bytes;
  };
  const auto used = [&] { return sum([](const slot_allocator& slots) { return slots.used_bytes(); }); };
  const auto capacity = static_cast<double>(sum([](const slot_allocator& slots) { return slots.capacity_bytes(); }));
  if (static_cast<double>(used()) <= options_.high_water * capacity) return;
  while (static_cast<double>(used()) > options_.low_water * capacity) {
    size_class* const from = oldest_class(0).first;
    if (from == nullptr || !evict_one(*from)) return;
  }
}

std::optional<std::pair<std::uint32_t, std::uint64_t>> store::allocate(std::uint64_t bytes) {
  for (int attempt = 0; attempt < eviction_attempts; ++attempt) {
    if (auto found = free_slot(bytes)) return found;
    size_class& own = class_of(bytes);
    const auto own_oldest = own.policy->victim();
    const auto [other, other_age] = oldest_class(bytes);
    const bool own_is_older = own_oldest && (other == nullptr || entries_[*own_oldest].touch <= other_age);
    if (own_is_older && evict_one(own)) continue;
    if (other != nullptr && free_extent(bytes)) continue;
    if (!own_oldest || !evict_one(own)) return std::nullopt;
  }
  return std::nullopt;
}

void store::note_erased(std::uint32_t path, instance_identity identity, const block_key& key) {
  catalog_change change{.what = catalog_change::kind::erase, .block = {}};
  change.block.instance = identity;
  change.block.key = key;
  changes_.push_back({path, std::move(change)});
}

void store::erase(std::uint32_t entry, bool tell, bool evicted) {
  const block_entry gone = entries_[entry];
  show(entry, false);
  path_entry& home = paths_[gone.path];
  if (home.state == path_state::serving) {
    eviction::policy& order = *class_of(bytes_of(gone)).policy;
    if (evicted) {
      order.evict(entry, gone.key_lo, policy_time(gone.touch));
    } else {
      order.forget(entry);
    }
  }
  --home.blocks;
  instance_entry& owner = instances_[gone.instance];
  --owner.blocks;
  note_if_unused(gone.instance);
  none_unused_ = false;
  note_erased(gone.path, owner.identity, gone.key());
  if (tell && owner.number != 0) lost_.push_back({owner.number, gone.key()});
  if (gone.readers == 0) home.slots->release(offset_of(gone));
  if (gone.readers != 0) {  // the slot goes with the read that still uses it
    for (auto& [tag, each] : operations_) {
      if (each.is_read && each.entry == entry) each.unwanted = true;
    }
  }
  if (options_.keeps_keys) keys_.erase(entry);
  entries_.erase(entry);
}

// ---------------------------------------------------------------------------------------------- writing

void store::answer(const transfer& block, transfer_result outcome) {
  outcomes_.push_back({block.token, outcome});
}

bool store::admitted(const block_key& key) {
  if (seen_.empty()) return true;
  std::uint32_t& place = seen_[key.hi % seen_.size()];
  const std::uint32_t tag = memory::hints::tag_of(key);
  return std::exchange(place, tag) == tag;
}

void store::write(std::span<const transfer> blocks, wall_time now) {
  for (const transfer& block : blocks) write_one(block, now);
  evict_ahead();
}

void store::write_one(const transfer& block, wall_time now) {
  const auto instance = bound(block.instance);
  if (!instance || block.memory.size() % sector_bytes != 0 || writing_.contains(block.key)) {
    ++counters_.dropped;
    return answer(block, transfer_result::dropped);
  }
  if (const auto held = entries_.find(*instance, block.key)) {
    const bool usable = bytes_of(entries_[*held]) == block.memory.size();  // damaged metadata may say another length
    if (usable && paths_[entries_[*held].path].state == path_state::serving) {
      entries_[*held].touch = now;
      class_of(block.memory.size()).policy->touch(*held, policy_time(now));
      return answer(block, transfer_result::done);
    }
    erase(*held, false);  // a copy that cannot be reached is worth less than a new one
  }
  if (!admitted(block.key)) {
    ++counters_.unadmitted;
    return answer(block, transfer_result::dropped);
  }
  const auto place = allocate(block.memory.size());
  if (!place) {
    ++counters_.dropped;
    return answer(block, transfer_result::dropped);
  }
  const std::uint64_t tag = next_tag_++;
  ++paths_[place->first].blocks;  // counted from now on: what is on its way takes a place in the metadata, too
  operations_.emplace(tag,
                      operation{.what = block, .instance = *instance, .path = place->first, .offset = place->second});
  writing_.emplace(block.key, tag);
  bytes_in_flight_ += block.memory.size();
  requests_.push_back({place->first, {io_kind::write, place->second, block.memory, tag, !block.checksum}});
}

void store::finish_write(operation& done, const io_completion& completion, wall_time now) {
  path_entry& home = paths_[done.path];
  const auto current = writing_.find(done.what.key);
  if (current != writing_.end() && current->second == completion.tag) writing_.erase(current);
  if (completion.error != 0 || done.unwanted) {
    --home.blocks;
    if (completion.error != ENOSPC) home.slots->release(done.offset);
    if (completion.error != 0 && completion.error != ECANCELED) note_write_error(done, completion.error);
    ++counters_.dropped;
    return answer(done.what, transfer_result::dropped);
  }
  home.errors_in_a_row = 0;
  home.status.takes_writes = true;
  const instance_identity identity = instances_[done.instance].identity;
  stored_block stored{.key = done.what.key,
                      .full = done.what.full,
                      .instance = identity,
                      .group = done.what.group,
                      .touch = now,
                      .offset = done.offset,
                      .bytes = done.what.memory.size(),
                      .checksum = bind_checksum(done.what.checksum.value_or(completion.checksum), identity,
                                                done.what.group, done.what.full)};
  const std::uint32_t entry = entries_.add({.key_hi = stored.key.hi,
                                            .key_lo = stored.key.lo,
                                            .checksum = stored.checksum,
                                            .sector = sectors_of(stored.offset),
                                            .sectors = sectors_of(stored.bytes),
                                            .touch = now,
                                            .instance = done.instance,
                                            .path = static_cast<std::uint8_t>(done.path)});
  links_.cover(entry + 1);
  if (home.state == path_state::serving)
    class_of(stored.bytes).policy->insert(entry, entries_[entry].key_lo, policy_time(now));
  ++instances_[done.instance].blocks;
  ++counters_.written;
  counters_.written_bytes += stored.bytes;
  if (options_.keeps_keys) keys_.set(entry, stored.group, stored.full);
  changes_.push_back({done.path, {.what = catalog_change::kind::put, .block = std::move(stored)}});
  show(entry, true);
  answer(done.what, transfer_result::done);
}

// ---------------------------------------------------------------------------------------------- reading

bool store::contains(instance_number number, const block_key& key) const noexcept {
  const auto instance = bound(number);
  if (!instance) return false;
  const auto entry = entries_.find(*instance, key);
  return entry && paths_[entries_[*entry].path].state == path_state::serving;
}

void store::read(std::span<const transfer> blocks, wall_time now) {
  for (const transfer& block : blocks) read_one(block, now);
}

void store::read_one(const transfer& block, wall_time now) {
  const auto instance = bound(block.instance);
  const auto entry = instance ? entries_.find(*instance, block.key) : std::nullopt;
  if (!entry || bytes_of(entries_[*entry]) != block.memory.size() ||
      paths_[entries_[*entry].path].state != path_state::serving ||
      entries_[*entry].readers == std::numeric_limits<std::uint8_t>::max()) {
    ++counters_.misses;
    return answer(block, transfer_result::missing);
  }
  block_entry& found = entries_[*entry];
  ++found.readers;
  found.touch = now;
  class_of(bytes_of(found)).policy->touch(*entry, policy_time(now));
  const std::uint64_t tag = next_tag_++;
  const std::uint64_t offset = offset_of(found);
  operations_.emplace(tag, operation{.what = block,
                                     .instance = *instance,
                                     .path = found.path,
                                     .offset = offset,
                                     .entry = *entry,
                                     .is_read = true});
  bytes_in_flight_ += block.memory.size();
  requests_.push_back({found.path, {io_kind::read, offset, block.memory, tag, true}});
}

void store::finish_read(operation& done, const io_completion& completion, wall_time /*now*/) {
  if (completion.error != 0 && completion.error != ECANCELED) note_error(done.path, completion.error);
  if (done.unwanted) {
    const bool last = std::ranges::none_of(operations_, [&](const auto& each) {
      return each.second.is_read && each.second.path == done.path && each.second.offset == done.offset;
    });
    if (last) paths_[done.path].slots->release(done.offset);
    return answer(done.what, transfer_result::missing);
  }
  block_entry& from = entries_[done.entry];
  --from.readers;
  if (completion.error == ECANCELED) return answer(done.what, transfer_result::failed);
  const instance_identity identity = instances_[done.instance].identity;
  const bool right = completion.error == 0 &&
                     bind_checksum(completion.checksum, identity, done.what.group, done.what.full) == from.checksum;
  if (completion.error == 0) {
    paths_[done.path].errors_in_a_row = 0;
    if (!right) ++counters_.checksum_errors;
  }
  if (!right) {
    erase(done.entry, true);
    return answer(done.what, transfer_result::failed);
  }
  ++counters_.read;
  counters_.read_bytes += done.what.memory.size();
  if (!options_.keep_copy && from.readers == 0) erase(done.entry, false);
  answer(done.what, transfer_result::done);
}

void store::complete(std::uint32_t path, std::span<const io_completion> done, wall_time now) {
  for (const io_completion& each : done) {
    if (each.tag == paths_[path].probe) {
      paths_[path].probe = 0;
      if (each.error == 0) restore_path(path);
      continue;
    }
    const auto found = operations_.find(each.tag);
    if (found == operations_.end()) continue;
    operation finished = std::move(found->second);
    operations_.erase(found);
    none_unused_ = false;
    bytes_in_flight_ -= finished.what.memory.size();
    if (finished.is_read) {
      finish_read(finished, each, now);
    } else {
      finish_write(finished, each, now);
    }
    note_if_unused(finished.instance);
  }
}

// ---------------------------------------------------------------------------------------------- forgetting

std::uint64_t store::remove(instance_number number, std::span<const block_key> keys) {
  const auto instance = bound(number);
  if (!instance) return 0;
  std::uint64_t removed = 0;
  for (const block_key& key : keys) {
    if (const auto entry = entries_.find(*instance, key)) {
      erase(*entry, false);
      ++removed;
    }
    if (const auto tag = writing_.find(key);
        tag != writing_.end() && operations_.at(tag->second).instance == *instance) {
      operations_.at(tag->second).unwanted = true;
      writing_.erase(tag);
    }
  }
  counters_.removed += removed;
  return removed;
}

/// The caller's one change a path says it all.
std::uint64_t store::erase_all_of(std::uint16_t instance) {
  const instance_number number = instances_[instance].number;
  const block_changes::clear_guard whole(block_changes_, {&number, number != 0 ? 1U : 0U});
  std::uint64_t removed = 0;
  const std::size_t changes = changes_.size();
  for (std::uint32_t entry = 0; entry < entries_.end(); ++entry) {
    if (entries_[entry].sectors == 0 || entries_[entry].instance != instance) continue;
    erase(entry, false);
    changes_.resize(changes);
    ++removed;
  }
  return removed;
}

std::uint64_t store::forget_instance(std::uint16_t instance) {
  for (auto& [tag, each] : operations_) {
    if (each.instance != instance || each.is_read) continue;
    each.unwanted = true;
    // Another instance may write the same key since this one was removed.
    if (const auto current = writing_.find(each.what.key); current != writing_.end() && current->second == tag) {
      writing_.erase(current);
    }
  }
  const std::uint64_t removed = erase_all_of(instance);
  note_everywhere(catalog_change::kind::erase_blocks, instances_[instance].identity);
  counters_.removed += removed;
  return removed;
}

void store::note_everywhere(catalog_change::kind what, instance_identity identity) {
  for (std::uint32_t path = 0; path < paths_.size(); ++path) {
    catalog_change change{.what = what, .block = {}};
    change.block.instance = identity;
    changes_.push_back({path, std::move(change)});
  }
}

std::uint64_t store::clear(instance_number number) {
  const auto instance = bound(number);
  return instance ? forget_instance(*instance) : 0;
}

std::uint64_t store::clear_identity(instance_identity identity) {
  const auto found = by_identity_.find(identity);
  return found == by_identity_.end() ? 0 : forget_instance(found->second);
}

std::uint64_t store::clear_all() {
  for (auto& [tag, each] : operations_) each.unwanted |= !each.is_read;
  writing_.clear();
  std::vector<instance_number> bound_ones;
  bound_ones.reserve(by_number_.size());
  for (const auto& [number, instance] : by_number_) bound_ones.push_back(number);
  const block_changes::clear_guard whole(block_changes_, bound_ones);
  std::uint64_t removed = 0;
  const std::size_t changes = changes_.size();
  for (std::uint32_t entry = 0; entry < entries_.end(); ++entry) {
    if (entries_[entry].sectors == 0) continue;
    erase(entry, false);
    changes_.resize(changes);  // one change an instance and path says it all
    ++removed;
  }
  for (std::size_t instance = 1; instance < instances_.size(); ++instance) {
    note_everywhere(catalog_change::kind::erase_blocks, instances_[instance].identity);
  }
  counters_.removed += removed;
  return removed;
}

// ---------------------------------------------------------------------------------------------- results

std::vector<path_request> store::take_requests() {
  return std::exchange(requests_, {});
}

std::vector<path_change> store::take_changes() {
  return std::exchange(changes_, {});
}

std::vector<transfer_outcome> store::take_outcomes() {
  return std::exchange(outcomes_, {});
}

std::vector<lost_block> store::take_lost() {
  return std::exchange(lost_, {});
}

std::vector<instance_identity> store::take_nameless() {
  return std::exchange(forgotten_, {});
}

store_status store::status() const {
  store_status all;
  all.counters = counters_;
  all.bytes_in_flight = bytes_in_flight_;
  all.blocks = entries_.size();
  for (const path_entry& each : paths_) {
    path_status one = each.status;
    one.state = each.state;
    one.blocks = each.blocks;
    if (each.slots) {
      one.capacity = each.slots->capacity_bytes() - std::min(each.slots->capacity_bytes(), one.bad_bytes);
      one.used = each.slots->used_bytes() - std::min(each.slots->used_bytes(), one.bad_bytes);
    }
    all.capacity += one.capacity;
    all.used += one.used;
    all.paths.push_back(std::move(one));
  }
  return all;
}

}  // namespace cenote::nvme
