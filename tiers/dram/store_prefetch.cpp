// Prefetches as the DRAM tier sees them: it reads wishes, carries out the planner's orders, and holds what came.
#include "memory/lower_hints.hpp"
#include "tiers/dram/store_state.hpp"

namespace cenote::dram {

using memory::block_ref;
using memory::submission;
using prefetch::place;

/// The last entry's answer comes later, from the planner, unless the request makes no sense or its chain goes on.
progress store::run_prefetch(batch& work, session& by, const submission& entry) {
  const bool group_known = entry.group < by.of->pools.size();
  const bool key_sane = entry.key_size >= min_key_bytes && entry.key_size <= max_key_bytes;
  prefetch::word& gathering = by.gathering;
  if (gathering.request != entry.request) gathering = {};
  if (gathering.keys.empty()) {
    gathering.session = by.number;
    gathering.request = entry.request;
    gathering.instance = by.of->number;
    gathering.group = entry.group;
    gathering.tokens_per_block = by.of->spec.tokens_per_block;
  }
  if (!group_known || !key_sane || entry.group != gathering.group) {
    refuse(work, entry, error_code::malformed);
  } else {
    gathering.stride = by.of->pools[entry.group]->stride;
    const full_key& full = gathering.keys.emplace_back(std::span(entry.key, entry.key_size));
    gathering.places.push_back(place_of(*by.of, entry.group, full));
  }
  ++work.next;
  if ((entry.flags & submission::flag_last) == 0) return progress::finished;
  prefetch::word whole = std::exchange(gathering, {});
  whole.terms = memory::prefetch_terms::of(entry);
  const bool sound = work.refusal == error_code::ok;
  if (!sound || whole.terms.more) finish_request(work, entry);
  work.late_answers += sound && !whole.terms.more ? 1 : 0;
  if (sound) prefetches_.push_back(std::move(whole));
  return progress::finished;
}

void store::run_prefetch_word(session& by, const submission& entry) {
  prefetch::word said;
  said.what = entry.op == memory::operation::stop_prefetch ? prefetch::word::kind::stop : prefetch::word::kind::end;
  said.session = by.number;
  said.request = entry.request;
  said.chain = entry.grant_version;
  prefetches_.push_back(std::move(said));
}

place store::place_of(const instance& in, std::uint32_t group, const full_key& full) const noexcept {
  const block_key key = reduce_key(full.view(), group);
  if (find_present(in, key, full, nullptr)) return place::present;
  if (in.loading.contains(key)) return place::loading;
  if (in.reserved_keys.contains(key) || !options_.lower.present) return place::absent;
  return memory::hint_reader(in.index.hints()).contains(key) ? place::below : place::absent;
}

// ---------------------------------------------------------------------------------------------- orders

prefetch::reply store::obey(const prefetch::order& order, coarse_time now) {
  prefetch::reply answer{.what = order.what, .job = order.job, .first = order.first, .loads = {}, .length = 0};
  switch (order.what) {
    case prefetch::order::kind::load: obey_load(order, answer, now); break;
    case prefetch::order::kind::finish: obey_finish(order, answer); break;
    case prefetch::order::kind::release: let_go(order.job); break;
  }
  return answer;
}

void store::obey_load(const prefetch::order& order, prefetch::reply& into, coarse_time now) {
  const auto owner = instances_.find(order.instance);
  for (std::size_t i = order.first; i < order.first + order.count; ++i) {
    const full_key& full = (*order.keys)[i];
    const load_answer answer = load(order.instance, order.group, full, now);
    into.loads.push_back(answer);
    if (answer.state == load_state::loading) {
      hold(order, moving_record_.at(answer.token), owner->second->pools[order.group]->stride);
    } else if (answer.state == load_state::present) {
      const auto ref = find_present(*owner->second, reduce_key(full.view(), order.group), full, nullptr);
      const slab& home = *slab_of(*owner->second, *ref);
      hold(order, home.what.first_record + ref->block(), home.what.stride);
    } else {
      return;
    }
  }
}

/// What the job holds beyond the prefix is let go.
void store::obey_finish(const prefetch::order& order, prefetch::reply& into) {
  const auto owner = instances_.find(order.instance);
  if (owner == instances_.end()) return;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> prefix;  // record, stride
  for (const full_key& full : *order.keys) {
    const auto ref = find_present(*owner->second, reduce_key(full.view(), order.group), full, nullptr);
    if (!ref) break;
    const slab& home = *slab_of(*owner->second, *ref);
    prefix.emplace_back(home.what.first_record + ref->block(), home.what.stride);
  }
  into.length = prefix.size();
  let_go(order.job);
  for (const auto& [record, stride] : prefix) hold(order, record, stride);
}

// ---------------------------------------------------------------------------------------------- holds

/// From now on the block is not evicted until the job ends. Bounded by hold_bytes: beyond that, blocks are left alone.
void store::hold(const prefetch::order& by, std::uint32_t record, std::uint64_t stride) {
  if (!by.hold || !sessions_.contains(by.session)) return;
  const auto found = held_for_.find(record);
  if (found == held_for_.end()) {
    const std::uint64_t most = options_.hold_bytes != 0 ? options_.hold_bytes : options_.capacity / 2;
    if (held_bytes_ + stride > most) {
      ++counters_.not_held;
      return;
    }
    held_bytes_ += stride;
  } else if (std::ranges::find(found->second, by.job) != found->second.end()) {
    return;
  }
  held_for_[record].push_back(by.job);
  job_holds& mine = job_holds_[by.job];
  mine.by = by.session;
  mine.records.push_back(record);
}

void store::let_go(std::uint64_t job) {
  const auto found = job_holds_.find(job);
  if (found == job_holds_.end()) return;
  for (const std::uint32_t record : found->second.records) {
    const auto held = held_for_.find(record);
    if (held == held_for_.end() || std::erase(held->second, job) == 0 || !held->second.empty()) continue;
    held_for_.erase(held);
    slab& home = *slab_of_record(record);
    held_bytes_ -= home.what.stride;
    note_loose(pool_of(home), record);
  }
  job_holds_.erase(found);
}

void store::let_go_all(session_number of) {
  std::vector<std::uint64_t> jobs;
  for (const auto& [job, held] : job_holds_) {
    if (held.by == of) jobs.push_back(job);
  }
  for (const std::uint64_t job : jobs) let_go(job);
}

/// The block is free: whatever fills it next is another one.
void store::forget_holds(std::uint32_t record, std::uint64_t stride) noexcept {
  if (!held_for_.empty() && held_for_.erase(record) != 0) held_bytes_ -= stride;
}

bool store::is_held(const slab& home, block_ref ref) const noexcept {
  return !held_for_.empty() && held_for_.contains(home.what.first_record + ref.block());
}

}  // namespace cenote::dram
