#include "tiers/blocks/prefetch_requests.hpp"

#include <algorithm>
#include <utility>

#include "tiers/blocks/lower_edges.hpp"
#include "tiers/blocks/pin_looks.hpp"
#include "tiers/blocks/prefetch_holds.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::submission;
using prefetch::load_state;
using prefetch::place;
using prefetch::spot;

namespace {

constexpr std::uint64_t most_patience = 3'600'000'000'000;  // ns: the planner has its own bound, this one that it fits

}  // namespace

share_holder prefetch_requests::holder_of(const session& session) {
  return {.uid = session.owner->uid, .group = session.of->spec.instance_group};
}

/// A prefetch or a lookup. The last entry's answer comes later, from the planner, unless the request makes no sense or
/// its chain goes on.
progress prefetch_requests::run_prefetch(batch& work, session& session, const submission& entry) {
  const bool group_known = entry.group < session.of->pools.size();
  const bool key_sane = entry.key_size >= min_key_bytes && entry.key_size <= max_key_bytes;
  prefetch::request& gathering = session.gathering;
  if (gathering.number != entry.request) gathering = {};
  if (gathering.keys.empty()) {
    gathering.session = session.number;
    gathering.number = entry.request;
    gathering.instance = session.of->number;
    gathering.group = entry.group;
    gathering.tokens_per_block = session.of->spec.tokens_per_block;
    gathering.holder = holder_of(session);
  }
  if (!group_known || !key_sane || entry.group != gathering.group) {
    refuse(work, entry, error_code::malformed);
  } else {
    gathering.stride = session.of->pools[entry.group]->stride;
    const full_key& full = gathering.keys.emplace_back(std::span(entry.key, entry.key_size));
    spot at = place_of(*session.of, entry.group, full);
    if (work.is_guest && at.what == place::unasked) at = {place::absent};
    gathering.places.push_back(at);
  }
  ++work.next;
  if ((entry.flags & submission::flag_last) == 0) return progress::finished;
  prefetch::request whole = std::exchange(gathering, {});
  if (entry.op == memory::operation::locate) {
    whole.what = prefetch::request::kind::locate;
    whole.patience = std::chrono::nanoseconds(std::min<std::uint64_t>(entry.argument, most_patience));
  } else {
    whole.terms = memory::prefetch_terms::of(entry);
  }
  whole.asks = edges_.unhinted();
  const bool sound = work.refusal == error_code::ok;
  if (!sound || whole.terms.more) finish_request(work, entry);
  work.late_answers += sound && !whole.terms.more ? 1 : 0;
  if (sound) prefetches_.push_back(std::move(whole));
  return progress::finished;
}

/// Keys of a request's blocks, behind its name. Of a hostile client's too many ones no more than a request may have are
/// gathered: a ring is shorter.
progress prefetch_requests::run_publish(batch& work, session& session, const submission& entry, boot_time now) {
  publication& gathering = session.publishing;
  if (gathering.request.text.empty() || gathering.number != entry.request) {
    gathering = name_of_publication(session, entry);
    if (gathering.request.text.empty()) refuse(work, entry, error_code::malformed);
  } else {
    const bool key_sane = entry.key_size >= min_key_bytes && entry.key_size <= max_key_bytes &&
                          entry.group == gathering.request.group &&
                          (gathering.keys.empty() || gathering.keys.front().size == entry.key_size);
    if (!key_sane) {
      refuse(work, entry, error_code::malformed);
    } else {
      const full_key& full = gathering.keys.emplace_back(std::span(entry.key, entry.key_size));
      const spot at = place_of(*session.of, entry.group, full);
      gathering.here.push_back(at.what == place::present || at.what == place::near);
    }
  }
  ++work.next;
  if ((entry.flags & submission::flag_last) == 0) return progress::finished;
  const publication whole = std::exchange(gathering, {});
  if (work.refusal == error_code::ok) {
    const auto keys = state_.requests.publish(whole, now);
    if (!keys) ++state_.counters.publications_refused;
    if (!keys) refuse(work, entry, keys.error().code());
    work.effects = keys.value_or(0);
  }
  finish_request(work, entry);
  return progress::finished;
}

/// Nameless: it makes no sense.
publication prefetch_requests::name_of_publication(const session& session, const submission& entry) {
  publication made;
  const bool is_sane =
      entry.group < session.of->pools.size() && entry.key_size >= 1 && entry.key_size <= handover::longest_request;
  if (!is_sane) return made;
  made.by = session.number;
  made.number = entry.request;
  made.instance = session.of->number;
  made.request = request_of(session, entry);
  made.payer = session.of->spec.paying_group();
  made.holder = holder_of(session);
  if (entry.argument != submission::no_place) made.first = entry.argument;
  made.ends = entry.want == 1;
  return made;
}

handover::request_name prefetch_requests::request_of(const session& session, const submission& entry) {
  return {.identity = session.of->identity,
          .group = entry.group,
          .text = {reinterpret_cast<const char*>(entry.key), entry.key_size}};
}

/// The planner answers, and in pieces: see memory::handed_keys.
progress prefetch_requests::run_follow(batch& work, session& session, const submission& entry) {
  prefetch::request& gathering = session.gathering;
  const bool is_last = (entry.flags & submission::flag_last) != 0;
  const bool is_sane = entry.group < session.of->pools.size() && entry.key_size <= handover::longest_request;
  const bool is_second = gathering.number == entry.request && !gathering.followed.text.empty();
  if (!is_second) {
    gathering = {};
    gathering.session = session.number;
    gathering.number = entry.request;
    gathering.instance = session.of->number;
    gathering.group = entry.group;
    gathering.holder = holder_of(session);
    if (is_sane) gathering.stride = session.of->pools[entry.group]->stride;
    if (is_sane && entry.key_size > 0) gathering.followed = request_of(session, entry);
    gathering.what = is_last ? prefetch::request::kind::more : prefetch::request::kind::follow;
    gathering.position = entry.argument;
    gathering.patience = std::chrono::nanoseconds(std::min<std::uint64_t>(entry.argument, most_patience));
  } else if (is_sane) {
    gathering.node = {reinterpret_cast<const char*>(entry.key), entry.key_size};
  }
  const bool fits = is_last == (is_second || entry.key_size == 0);  // a name has a second entry, and no third
  if (!is_sane || !fits) refuse(work, entry, error_code::malformed);
  ++work.next;
  if (!is_last) return progress::finished;
  prefetch::request whole = std::exchange(gathering, {});
  whole.chain = entry.grant_version;
  whole.asks = edges_.unhinted();
  if (work.refusal == error_code::ok) {
    ++work.late_answers;
    prefetches_.push_back(std::move(whole));
  } else {
    finish_request(work, entry);
  }
  return progress::finished;
}

void prefetch_requests::run_prefetch_end(session& session, const submission& entry) {
  prefetch::request request;
  request.what =
      entry.op == memory::operation::stop_prefetch ? prefetch::request::kind::stop : prefetch::request::kind::end;
  request.session = session.number;
  request.number = entry.request;
  request.chain = entry.grant_version;
  prefetches_.push_back(std::move(request));
}

spot prefetch_requests::place_of(const instance& instance, std::uint32_t group, const full_key& full) const noexcept {
  const block_key key = reduce_key(full.view(), group);
  if (state_.find_present(instance, key, full, nullptr)) return {place::present};
  if (const auto under_way = instance.loading.find(key); under_way != instance.loading.end()) {
    return {place::loading, static_cast<std::uint8_t>(transfers_.edge_of(under_way->second))};
  }
  if (instance.reserved_keys.contains(key) || instance.is_clearing()) return {place::absent};
  const auto edge = edges_.source_of(instance, key);
  if (!edge) return {place::absent};
  return {edges_.unhinted()[*edge] ? place::unasked : place::near, static_cast<std::uint8_t>(*edge)};
}

prefetch::command_result prefetch_requests::execute(const prefetch::command& command, boot_time now) {
  prefetch::command_result answer{
      .what = command.what, .job = command.job, .edge = command.edge, .loads = {}, .length = 0};
  switch (command.what) {
    case prefetch::command::kind::load: execute_load(command, answer, now); break;
    case prefetch::command::kind::finish: execute_finish(command, answer); break;
    case prefetch::command::kind::release: end_holds(command.job); break;
  }
  return answer;
}

void prefetch_requests::execute_load(const prefetch::command& command, prefetch::command_result& into, boot_time now) {
  const auto owner = state_.instances.find(command.instance);
  for (const std::uint32_t each : command.which) {
    const full_key& full = (*command.keys)[each];
    const prefetch::load_answer answer =
        edges_.load(command.instance, command.group, full, now, command.edge, command.from);
    into.loads.push_back(answer);
    if (answer.state == load_state::loading) {
      keep_held(command, transfers_.record_moving(answer.token), owner->second->pools[command.group]->stride);
    } else if (answer.state == load_state::present) {
      const auto ref = state_.find_present(*owner->second, reduce_key(full.view(), command.group), full, nullptr);
      const slab& home = *slab_of(*owner->second, *ref);
      keep_held(command, home.what.first_record + ref->block(), home.what.stride);
    } else {
      return;
    }
  }
}

/// What the job holds beyond the prefix is let go.
void prefetch_requests::execute_finish(const prefetch::command& command, prefetch::command_result& into) {
  const auto owner = state_.instances.find(command.instance);
  if (owner == state_.instances.end()) return;
  std::vector<std::pair<std::uint32_t, std::uint64_t>> prefix;  // record, stride
  for (const full_key& full : *command.keys) {
    const auto ref = state_.find_present(*owner->second, reduce_key(full.view(), command.group), full, nullptr);
    if (!ref) break;
    const slab& home = *slab_of(*owner->second, *ref);
    prefix.emplace_back(home.what.first_record + ref->block(), home.what.stride);
  }
  into.length = prefix.size();
  end_holds(command.job);
  for (const auto& [record, stride] : prefix) keep_held(command, record, stride);
}

/// From now on the block is not evicted until the job ends. Bounded by hold_bytes: beyond that, blocks are left alone.
void prefetch_requests::keep_held(const prefetch::command& command, std::uint32_t record, std::uint64_t stride) {
  if (!command.hold || !state_.sessions.contains(command.session)) return;
  const std::uint64_t most = state_.options.hold_bytes != 0 ? state_.options.hold_bytes : state_.options.capacity / 2;
  if (!holds_.hold(command.job, command.session, record, stride, most)) ++state_.counters.not_held;
}

void prefetch_requests::end_holds(std::uint64_t job) {
  for (const std::uint32_t record : holds_.let_go(job)) {
    pins_.note_loose(pool_of(*state_.slab_of_record(record)), record);
  }
}

}  // namespace cenote::blocks
