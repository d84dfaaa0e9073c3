#include "tiers/blocks/eviction_order.hpp"

#include <algorithm>
#include <utility>

#include "memory/store_point.hpp"
#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/pin_looks.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_record;

namespace {

constexpr std::uint64_t most_told = ~std::uint32_t{0};
constexpr std::uint32_t least_told_change = 64;  // a share; queues need not follow every block

}  // namespace

/// What a policy's shares and refusals go by: the blocks that the pool could order if others kept what they have, of
/// which `coming` are not in it yet. What is written back goes first, so it is room.
void eviction_order::tell_capacity(pool& group, std::size_t coming) {
  const std::uint64_t limit = share_of(
      state_.usable_bytes(), state_.options.has_lower() ? state_.options.high_water : state_.options.low_water);
  const std::uint64_t counted = state_.counted_bytes() - (state_.options.has_lower() ? 0 : written_back_bytes_);
  const std::uint64_t own = group.policy->size() + coming;
  const std::uint64_t over = counted > limit ? (counted - limit) / group.stride : 0;
  const std::uint64_t room = counted > limit ? own - std::min(own, over) : own + (limit - counted) / group.stride;
  const auto capacity = static_cast<std::uint32_t>(std::clamp<std::uint64_t>(room, 1, most_told));
  const std::uint32_t apart = capacity > group.told ? capacity - group.told : group.told - capacity;
  if (apart <= group.told / least_told_change) return;
  group.told = capacity;
  group.policy->resize(capacity);
}

void eviction_order::enter_order(pool& group, std::uint32_t record, boot_time now) {
  if (accounts_.keeps(group, record)) return accounts_.note_kept(group, record);
  enter_policy(group, record, now);
}

void eviction_order::enter_policy(pool& group, std::uint32_t record, boot_time now) {
  group.policy->insert(record, state_.key_hash(group, record), count_of(now));
  bounded_.enter(group, record, now);
  pins_.note_loose(group, record);
}

void eviction_order::leave_order(pool& group, std::uint32_t record, departure why, boot_time now) {
  std::uint8_t& flags = state_.records[record].flags;
  if ((flags & block_record::flag_written_back) != 0) {
    memory::shared_clear_bits(flags, block_record::flag_written_back, "leave_order.not_written_back"_point);
    group.written_back->forget(record);
    written_back_bytes_ -= group.stride;
  } else if ((flags & block_record::flag_kept) != 0) {
    accounts_.note_kept_no_more(group, record);
  } else if (!transfers_.in_policy(record)) {  // it was to leave when it is written
    transfers_.stay(record);
    --group.leaving;
  } else {
    bounded_.leave(group, record);
    if (why == departure::evicted) {
      group.policy->evict(record, state_.key_hash(group, record), count_of(now));
    } else {
      group.policy->forget(record);
    }
  }
}

void eviction_order::mark_written_back(pool& group, std::uint32_t record, boot_time now) {
  memory::shared_set_bits(state_.records[record].flags, block_record::flag_written_back, "write_back.flagged"_point);
  group.written_back->insert(record, state_.key_hash(group, record), count_of(now));
  written_back_bytes_ += group.stride;
  pins_.note_loose(group, record);
}

void eviction_order::touch_order(pool& group, std::uint32_t record, boot_time now) {
  if ((state_.records[record].flags & block_record::flag_written_back) != 0) {
    leave_order(group, record, departure::removed, now);
    enter_order(group, record, now);
  } else if (transfers_.in_policy(record)) {
    group.policy->touch(record, count_of(now));
    bounded_.touch(group, record, now);
  }
}

bool eviction_order::is_in_policy(std::uint32_t record) const noexcept {
  return (state_.records[record].flags & (block_record::flag_written_back | block_record::flag_kept)) == 0 &&
         transfers_.in_policy(record);
}

void eviction_order::block_change_kind(pool& group, std::uint32_t record, block_kind kind, boot_time now) {
  if (kind_of(record) == kind) return;
  bounded_.prepare(record, kind);
  const bool is_ordered = is_in_policy(record);
  if (is_ordered) bounded_.leave(group, record);
  set_kind(record, kind);
  if (is_ordered) bounded_.enter(group, record, now);
}

void eviction_order::skip_victim(pool& group, std::uint32_t record, boot_time now) {
  bounded_.touch(group, record, now);
  group.policy->skip_victim(record, count_of(now));
}

result<void> eviction_order::set_policy(const std::string& name, boot_time now) {
  if (name == state_.options.policy) return {};
  if (auto known = eviction::make_policy(name, links_); !known) return std::unexpected(known.error());
  state_.options.policy = name;
  for (const auto& [number, each] : state_.instances) {
    for (const auto& group : each->pools) {
      const auto old = std::exchange(group->policy, std::move(*eviction::make_policy(name, links_)));
      if (group->told != 0) group->policy->resize(group->told);
      while (const auto next = old->victim()) {
        old->forget(*next);
        bounded_.leave(*group, *next);
        enter_order(*group, *next, now);
      }
    }
  }
  return {};
}

void eviction_order::equip(pool& group) {
  group.policy = std::move(*eviction::make_policy(state_.options.policy, links_));
  group.written_back = std::move(*eviction::make_policy("lru", links_));
  bounded_.equip(group);
}

}  // namespace cenote::blocks
