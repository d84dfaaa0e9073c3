#include "tiers/blocks/status.hpp"

#include <algorithm>
#include <unordered_map>

#include "tiers/blocks/parts.hpp"

namespace cenote::blocks {

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
  std::unordered_map<session_number, std::uint64_t> writing;  // blocks
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
    one.chosen = each->pools.front()->policy->choosing();
    if (const pool& first = *each->pools.front(); first.watched_room != 0) {
      one.curve = curve_status{
          .instance = number, .requests = 0, .capacity = first.told, .block_bytes = first.stride, .points = {}};
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
    const std::uint64_t limit =
        std::min<std::uint64_t>(each->memory.pin_slots(), each->memory.header().pin_high_water.load());
    for (std::uint64_t i = 0; i < limit; ++i)
      one.pins += each->memory.pin(i).load(std::memory_order_relaxed) != 0 ? 1 : 0;
    one.writing = writing[number];
    all.granted += one.grants;
    all.sessions.push_back(std::move(one));
  }
  const auto status_of_account = [](const account& payer) {
    return account_status{payer.name,     payer.given.quota, payer.used,          payer.kept,
                          payer.reserved, payer.wrong,       payer.given.priority};
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
