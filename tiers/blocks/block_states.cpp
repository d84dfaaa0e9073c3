#include "tiers/blocks/block_states.hpp"

#include <utility>
#include <vector>

#include "core/checksum.hpp"
#include "memory/fence.hpp"
#include "memory/store_point.hpp"
#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/eviction_order.hpp"
#include "tiers/blocks/pin_looks.hpp"
#include "tiers/blocks/prefetch_holds.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_ref;
using memory::block_state;
using memory::index_value;

/// `checksum`: of the bytes, as far as somebody took it.
void block_states::publish(instance& instance, slab& home, block_ref ref, const full_key& key, block_times times,
                           std::optional<std::uint64_t> checksum, block_kind kind) {
  make_present(instance, home, ref, key, times, checksum, kind);
  state_.changes.stored(home.what.first_record + ref.block(), instance.number, home.what.group, key);
}

void block_states::publish_moved(instance& instance, slab& home, block_ref ref, std::uint32_t origin, boot_time now,
                                 std::optional<std::uint64_t> checksum, block_kind kind) {
  const memory::block_record& moved = state_.records[origin];
  const full_key key = moved.get_key();
  make_present(instance, home, ref, key, {.arrival = moved.arrival(), .use = now}, checksum, kind);
  state_.changes.moved(origin, home.what.first_record + ref.block(), instance.number, home.what.group, key);
}

void block_states::make_present(instance& instance, slab& home, block_ref ref, const full_key& key, block_times times,
                                std::optional<std::uint64_t> checksum, block_kind kind) {
  order_.prepare_kind(home.what.first_record + ref.block(), kind);
  memory::block_record& record = state_.record_of(home, ref);
  const std::uint32_t version_index = version_index_of(home, ref);
  const pool& group = pool_of(home);
  const std::uint64_t before = instance.versions.version(version_index);
  const std::uint64_t version = (before | 1) + 1;  // the next even one; an unused block has 0
  record.set_key(key);
  memory::shared_store(record.parts, group.all_parts, std::memory_order_relaxed, "publish.parts"_point);
  memory::shared_store(record.touch, count_of(times.use), std::memory_order_relaxed, "publish.touch"_point);
  memory::shared_store(record.hits, 0, std::memory_order_relaxed, "publish.hits"_point);
  memory::shared_assign(record.flags, 0, "publish.flags"_point);
  memory::shared_store(record.checksum_or_writers, 0, std::memory_order_relaxed, "publish.no_writers"_point);
  if (state_.options.checksum_at_commit && state_.options.bytes_are_host) {
    state_.spent += group.block_bytes >> 14;
    checksum = checksum_of(home.block(ref), group.block_bytes);
  }
  if (checksum) {
    memory::shared_store(record.checksum_or_writers, *checksum, std::memory_order_relaxed, "publish.checksum"_point);
    memory::shared_assign(record.flags, memory::block_record::flag_checksum, "publish.has_checksum"_point);
  }
  record.set(block_state::present, version, "publish.present"_point);  // the truth: from here on a restart serves it
  // Only now: of a block that is loading, a restart reads the tier here. What stands here is older than any arrival.
  memory::shared_store(record.source, count_of(times.arrival), std::memory_order_relaxed, "publish.arrival"_point);
  instance.versions.set_key(version_index, key);
  instance.versions.set_version(version_index, version, "publish.version"_point);
  const block_key name = reduce_key(key.view(), home.what.group);
  // Cannot fail: make_index_room() came before the slab.
  (void)instance.index.insert(name, index_value::make(ref, version));
  order_.set_kind(home.what.first_record + ref.block(), kind);
  ++home.present;
  home.touch_sum += count_of(times.use);
  state_.blank -= group.stride;
  if (state_.requests.awaits(instance.number)) state_.requests.arrived(instance.number, name, times.use);
}

void block_states::free_block(instance& instance, slab& home, block_ref ref) {
  pool& group = pool_of(home);
  const block_state before = state_.record_of(home, ref).state();
  if (before != block_state::present) state_.blank -= group.stride;
  if (before == block_state::pending || before == block_state::quarantined) {
    accounts_.discharge_reservation(instance, ref, group.stride);
  }
  state_.record_of(home, ref).set_state(block_state::free, "free_block.state"_point);
  holds_.forget_holds(home.what.first_record + ref.block());
  group.free.push_back(ref);
  instance.payer->repay(&account::used, group.stride);
  state_.used -= group.stride;
}

std::uint64_t block_states::forget_blocks(instance& instance, std::span<const block_ref> refs, boot_time now) {
  state_.spent += refs.size();
  const std::vector<bool> pinned = pins_.condemn(instance, refs);
  for (std::size_t i = 0; i < refs.size(); ++i) {
    slab& home = *slab_of(instance, refs[i]);
    memory::block_record& record = state_.record_of(home, refs[i]);
    instance.index.erase(reduce_key(record.get_key().view(), home.what.group));
    const std::uint32_t number = home.what.first_record + refs[i].block();
    state_.note_removed(home, refs[i]);
    order_.leave_order(pool_of(home), number, departure::removed, now);
    --home.present;
    home.touch_sum -= count_of(record.last_use());
    if (pinned[i]) {
      record.set_state(block_state::zombie, "forget_blocks.zombie"_point);
      state_.blank += home.what.stride;
      instance.zombies.push_back(refs[i]);
    } else {
      free_block(instance, home, refs[i]);
    }
  }
  state_.counters.removed += refs.size();
  return refs.size();
}

void block_states::rescan_zombies(instance& instance) {
  if (instance.zombies.empty()) return;
  memory::full_fence();
  memory::pin_scan scan(instance.zombies);
  for (const session* each : instance.sessions) scan.add(each->memory);
  std::vector<block_ref> still;
  for (std::size_t i = 0; i < instance.zombies.size(); ++i) {
    if (scan.pinned(i) || transfers_.is_moving(*slab_of(instance, instance.zombies[i]), instance.zombies[i])) {
      still.push_back(instance.zombies[i]);
    } else {
      free_block(instance, *slab_of(instance, instance.zombies[i]), instance.zombies[i]);
    }
  }
  instance.zombies = std::move(still);
}

void block_states::restore(instance& instance, slab& home, block_ref ref) {
  // The next even version, not the old one: versions never decrease.
  const std::uint64_t version = instance.versions.version(version_index_of(home, ref)) + 1;
  memory::block_record& record = state_.record_of(home, ref);
  record.set(block_state::present, version, "restore.present"_point);
  instance.versions.set_version(version_index_of(home, ref), version, "restore.version"_point);
  (void)instance.index.insert(reduce_key(record.get_key().view(), home.what.group), index_value::make(ref, version));
}

}  // namespace cenote::blocks
