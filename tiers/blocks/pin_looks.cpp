#include "tiers/blocks/pin_looks.hpp"

#include <utility>

#include "memory/fence.hpp"
#include "memory/store_point.hpp"
#include "tiers/blocks/prefetch_holds.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_ref;
using memory::block_state;

namespace {

// Both have to be used up, within a tenth of a second, before look_again() refuses: looks, and their cost in 64 pin
// slots.
constexpr unsigned most_forced_looks = 16;
constexpr std::uint64_t most_forced_cost = 1024;

}  // namespace

std::vector<bool> pin_looks::condemn(instance& instance, std::span<const block_ref> refs) {
  for (const block_ref ref : refs) {
    const std::uint32_t version_index = version_index_of(*slab_of(instance, ref), ref);
    instance.versions.set_version(version_index, instance.versions.version(version_index) | 1, "condemn.version"_point);
  }
  ++state_.counters.pin_scans;
  state_.spent += refs.size() + scan_cost(instance);
  memory::full_fence();  // pairs with the reader's: it sees the odd version, or we see its pin
  memory::pin_scan scan(refs);
  for (const session* each : instance.sessions) scan.add(each->memory);
  std::vector<bool> pinned(refs.size());
  for (std::size_t i = 0; i < refs.size(); ++i) {
    const slab& home = *slab_of(instance, refs[i]);
    pinned[i] = scan.pinned(i) || transfers_.is_moving(home, refs[i]) ||
                holds_.is_held(home.what.first_record + refs[i].block());
  }
  return pinned;
}

bool pin_looks::any_pinned(const instance& instance, std::span<const block_ref> refs) {
  ++state_.counters.pin_scans;
  state_.spent += refs.size() + scan_cost(instance);
  memory::pin_scan scan(refs);
  for (const session* each : instance.sessions) scan.add(each->memory);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    const slab& home = *slab_of(instance, refs[i]);
    if (scan.pinned(i) || transfers_.is_moving(home, refs[i]) ||
        holds_.is_held(home.what.first_record + refs[i].block()))
      return true;
  }
  return false;
}

/// Scans all pins of the instance and notes which blocks they hold: a hint, valid until the clock ticks.
void pin_looks::mark_pins(instance& instance, boot_time now) {
  ++instance.pin_look;
  instance.pins_seen = now;
  ++state_.counters.pin_scans;
  state_.spent += scan_cost(instance);
  std::vector<std::uint32_t> gone;  // by group: blocks that the look before found pinned, as far as this one does not
  gone.reserve(instance.pools.size());
  for (const auto& group : instance.pools) gone.push_back(std::exchange(group->pinned, 0));
  for (const session* each : instance.sessions) {
    const std::uint64_t limit = std::min<std::uint64_t>(
        each->memory.pin_slots(), each->memory.header().pin_high_water.load(std::memory_order_acquire));
    for (std::uint64_t i = 0; i < limit; ++i) {
      const std::uint64_t bits = each->memory.pin(i).load(std::memory_order_relaxed);
      if (bits == 0) continue;
      const block_ref ref = block_ref::from_bits(bits);
      slab* home = slab_of(instance, ref);
      if (home == nullptr) continue;
      if (home->pin_marks.empty()) home->pin_marks.resize(home->what.count);
      const std::uint32_t last = std::exchange(home->pin_marks[ref.block()], instance.pin_look);
      if (last == instance.pin_look) continue;
      const std::uint32_t number = home->what.first_record + ref.block();
      const bool evictable = state_.records[number].state() == block_state::present && transfers_.in_policy(number);
      if (!evictable) continue;
      ++pool_of(*home).pinned;
      if (last == instance.pin_look - 1 && gone[home->what.group] > 0) --gone[home->what.group];
    }
  }
  for (std::size_t group = 0; group < gone.size(); ++group) {
    if (gone[group] > 0) instance.pools[group]->vain_at = {};
  }
}

/// A block came, or a holder of it is gone. If nobody else holds it, its pool is worth examining again.
void pin_looks::note_loose(pool& group, std::uint32_t record) {
  if (group.vain_at == boot_time{}) return;
  const slab& home = *state_.slab_of_record(record);
  if (!is_stuck(home, block_ref(home.what.index, record - home.what.first_record), group.vain_at)) group.vain_at = {};
}

/// Scans the pins again before a request is refused, since those of the last scan may be gone. At most so often in a
/// tenth of a second that a flood of requests that cannot be served costs little. True: it scanned.
bool pin_looks::look_again(instance& instance, boot_time now) {
  if (instance.pin_look == 0 && instance.zombies.empty()) return false;  // never met a pin
  if (forced_at_ != now) forced_looks_ = 0, forced_cost_ = 0;
  forced_at_ = now;
  const bool affordable = forced_looks_ < most_forced_looks || forced_cost_ < most_forced_cost;
  if (instance.pins_seen == now && !affordable) return false;
  ++forced_looks_;
  forced_cost_ += scan_cost(instance);
  mark_pins(instance, now);
  return true;
}

/// True: a transfer or prefetch holds the block, or a pin did at the scan of this tenth of a second.
bool pin_looks::is_stuck(const slab& home, block_ref ref, boot_time now) const noexcept {
  if (transfers_.is_moving(home, ref) || holds_.is_held(home.what.first_record + ref.block())) return true;
  const instance& in = *home.owner;
  return in.pins_seen == now && !home.pin_marks.empty() && home.pin_marks[ref.block()] == in.pin_look;
}

/// Steps that a look through the pins of all sessions of the instance counts as.
std::uint64_t pin_looks::scan_cost(const instance& instance) const noexcept {
  std::uint64_t slots = 0;
  for (const session* each : instance.sessions) {
    slots += std::min<std::uint64_t>(each->memory.pin_slots(), each->memory.header().pin_high_water.load());
  }
  return instance.sessions.size() + slots / 64;
}

}  // namespace cenote::blocks
