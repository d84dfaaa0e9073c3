#include "tiers/blocks/status.hpp"

#include <algorithm>
#include <unordered_map>

#include "tiers/blocks/parts.hpp"

namespace cenote::blocks {

namespace {

/// Blocks that a pool has room for now, in the tier and within the quotas of those that pay.
std::uint64_t capacity_of(const pool& group, const account& payer) {
  std::uint64_t blocks = group.told;
  for (const account* each = &payer; each != nullptr; each = each->parent) {
    if (each->given.quota != 0) blocks = std::min(blocks, each->given.quota / group.stride);
  }
  return blocks;
}

std::uint64_t pins_of(const session& session) noexcept {
  const std::uint64_t limit =
      std::min<std::uint64_t>(session.memory.pin_slots(), session.memory.header().pin_high_water.load());
  std::uint64_t pins = 0;
  for (std::uint64_t i = 0; i < limit; ++i) pins += session.memory.pin(i).load(std::memory_order_relaxed) != 0 ? 1 : 0;
  return pins;
}

void put_lookups(instance_status& status, const memory::lookup_counts& lookups,
                 std::uint32_t tokens_per_block) noexcept {
  static_cast<memory::lookup_counts&>(status) = lookups;
  status.match_tokens = tokens_of(lookups.match_keys, tokens_per_block);
  status.match_resident_tokens = tokens_of(lookups.match_resident, tokens_per_block);
  status.match_lower_tokens = tokens_of(lookups.match_lower, tokens_per_block);
  status.read_tokens = tokens_of(lookups.read_keys, tokens_per_block);
  status.read_resident_tokens = tokens_of(lookups.read_resident, tokens_per_block);
}

}  // namespace

store_status status_of(const parts& parts, boot_time now) {
  store_status all;
  all.capacity = parts.all.options.capacity;
  all.assigned = parts.all.assigned;
  all.used = parts.all.used;
  all.cached = parts.all.used - parts.all.blank;
  all.counters = parts.all.counters;
  all.loading = parts.transfers.recovered().size();
  all.writing_bytes = parts.transfers.writing_bytes();
  all.loading_bytes = parts.transfers.loading_bytes();
  all.held_bytes = parts.holds.bytes();
  all.copy_bytes = parts.all.shares.used[0];
  all.hosted_bytes = parts.all.shares.used[1];
  all.published = parts.all.requests.requests();
  all.published_keys = parts.all.requests.keys();
  all.followers = parts.all.requests.followers();
  std::unordered_map<const account*, group_hits> hits;
  std::unordered_map<session_number, std::uint64_t> writing;  // blocks
  std::unordered_map<session_number, std::uint64_t> pins;
  for (const auto& [number, each] : parts.all.instances) {
    instance_status one;
    one.id = each->spec.id;
    one.group = each->spec.paying_group();
    one.account = each->payer->name;
    one.sessions = each->sessions.size();
    one.slabs = each->slabs.size();
    one.index_slots = each->index.slots();
    one.index_entries = each->index.size();
    one.zombie = each->zombies.size();
    one.quarantined = each->quarantined.size();
    one.pending = each->reservations.size();
    one.loading = each->loading.size();
    for (const auto& [bits, held] : each->reservations) {
      for (const auto& who : held.writers) ++writing[who.by];
    }
    if (each->sessions.empty()) {
      const auto since = each->versions.idle_since();
      one.idle = age_of(since, now);
      if (const auto limit = parts.idle.idle_limit(*each)) one.given_up = *limit - std::min(*limit, *one.idle);
    }
    const memory::lookup_counts lookups = lookups_of(*each);
    put_lookups(one, lookups, each->spec.tokens_per_block);
    for (const account* payer = each->payer; payer != nullptr; payer = payer->parent)
      add_hits(hits.try_emplace(payer, payer->past_hits).first->second, uncredited(lookups, *each),
               each->spec.tokens_per_block);
    for (const session* attached : each->sessions) one.pinned += pins[attached->number] = pins_of(*attached);
    one.chosen = each->pools.front()->policy->choosing();
    if (const pool& first = *each->pools.front(); is_watched(first, parts.all.options.watch)) {
      one.curve = curve_status{.instance = number,
                               .requests = 0,
                               .capacity = capacity_of(first, *each->payer),
                               .block_bytes = first.stride,
                               .points = {}};
    }
    for (const auto& group : each->pools) {
      one.free += group->free.size();
      one.present += group->policy->size() + group->written_back->size() + group->leaving + group->kept;
      for (const slab* home : group->slabs) one.bytes += home->what.block_bytes();
    }
    all.present += one.present;
    all.free += one.free;
    all.zombie += one.zombie;
    all.quarantined += one.quarantined;
    all.pending += one.pending;
    all.loading += one.loading;
    all.slabs += one.slabs;
    all.instances.push_back(std::move(one));
  }
  for (const auto& [number, each] : parts.all.sessions) {
    session_status one;
    one.number = number;
    one.instance = each->of->spec.id;
    one.grants = each->granted.size();
    one.connected = each->connected;
    one.is_ended = each->is_ended;
    one.wrong = each->wrong_blocks;
    if (each->watched_pin != 0) one.oldest_pin = now - each->watched_since;
    static_cast<memory::lookup_counts&>(one) = each->lookups.counts();
    one.pins = pins[number];
    one.writing = writing[number];
    all.granted += one.grants;
    all.sessions.push_back(std::move(one));
  }
  const auto status_of_account = [&](const account& payer) {
    const auto of_instances = hits.find(&payer);
    return account_status{of_instances == hits.end() ? payer.past_hits : of_instances->second,
                          payer.name,
                          payer.given.quota,
                          payer.used,
                          payer.kept,
                          payer.reserved,
                          payer.wrong,
                          payer.given.priority};
  };
  for (const auto& [name, whole] : parts.payers.all()) {
    all.accounts.push_back(status_of_account(*whole));
    for (const auto& [uid, each] : whole->users) {
      all.users.push_back(status_of_account(*each));
      all.users.back().uid = uid;
    }
  }
  return all;
}

}  // namespace cenote::blocks
