#include "services/manager/writes/remove_blocks.hpp"

#include <string>
#include <utility>

namespace cenote::manager {

namespace {

std::unexpected<rpc_refusal> refuse_instance(std::string_view id) {
  return refuse(answer_code::instance_not_exist, "there is no instance " + std::string(id));
}

bool is_live(location_state state) noexcept {
  return state == location_state::writing || state == location_state::serving;
}

void give_up(write_parts& parts, instance_state& instance, std::uint32_t record) {
  std::vector<location> places;
  instance.index->visit_locations(record, [&](const location& place) { places.push_back(place); });
  for (const location& place : places) {
    extent_state* const extent = instance.extent(place.extent);
    if (extent == nullptr) continue;  // of a session that is not granted yet
    if (is_live(extent->states[place.position])) {
      parts.changes.set_state(instance, *extent, place.position, location_state::deleting);
      parts.changes.note(round_work::remove);
    }
  }
}

template <class Receiver>
void answer_with(rpc_outcome<>& outcome, const result<>& committed, const Receiver& receive) {
  if (!outcome) {
    receive(std::unexpected(std::move(outcome.error())));
  } else if (!committed) {
    receive(refuse_unwritten(committed.error()));
  } else {
    receive({});
  }
}

extent_walk walk_of(const trim_request& request) {
  const auto action = request.scope == trim_scope::records ? extent_walk::action::forget : extent_walk::action::remove;
  if (request.scope != trim_scope::period) return {action, {}};
  return {action, {.begin = std::max(request.begin, 1U), .end = request.end}};
}

}  // namespace

rpc_outcome<bool> remove_keys::remove(write_parts& parts, write_round& round) {
  instance_state* const instance = parts.state.instance_called(request_.instance);
  if (instance == nullptr) return refuse_instance(request_.instance);
  if (!has_begun_) {
    auto spared = mask_of(request_.spared, request_.keys.size(), "block_mask");
    if (!spared) return std::unexpected(std::move(spared.error()));
    spared_ = std::move(*spared);
    has_begun_ = true;
  }
  for (; next_ < request_.keys.size() && round.keys > 0; ++next_, --round.keys) {
    if (spared_[next_]) continue;
    const std::uint32_t record = instance->index->find(request_.keys[next_]);
    if (record != no_record) give_up(parts, *instance, record);
  }
  return next_ == request_.keys.size();
}

bool remove_keys::advance(write_parts& parts, write_round& round) {
  const auto is_complete = remove(parts, round);
  if (!is_complete) outcome_ = std::unexpected(is_complete.error());
  return !is_complete || *is_complete;
}

void remove_keys::answer(const result<>& committed) {
  answer_with(outcome_, committed, receive_);
}

void extent_walk::visit(write_parts& parts, instance_state& instance, extent_state& extent) const {
  if (filter_.storage && extent.storage != *filter_.storage) return;
  if (extent.wrote_at < filter_.begin || extent.wrote_at > filter_.end) return;
  for (std::uint32_t i = 0; i < extent.states.size(); ++i) {
    const location_state state = extent.states[i];
    if (action_ == action::forget) {
      if (state != location_state::none) parts.changes.set_state(instance, extent, i, location_state::none);
    } else if (is_live(state)) {
      parts.changes.set_state(instance, extent, i, location_state::deleting);
    }
  }
}

bool extent_walk::advance(write_parts& parts, instance_state& instance, write_round& round) {
  for (; next_ < instance.extents.size() && round.keys > 0; ++next_) {
    extent_state* const extent = instance.extents[next_].get();
    if (extent == nullptr) continue;
    visit(parts, instance, *extent);
    round.keys -= std::min(round.keys, extent->states.size());
  }
  return next_ >= instance.extents.size();
}

trim_instance::trim_instance(trim_request request, outcome_receiver<void> receive)
    : request_(std::move(request)), receive_(std::move(receive)), walk_(walk_of(request_)) {}

bool trim_instance::advance(write_parts& parts, write_round& round) {
  instance_state* const instance = parts.state.instance_called(request_.instance);
  if (instance == nullptr) {
    outcome_ = refuse_instance(request_.instance);
    return true;
  }
  parts.changes.note(round_work::trim);
  return walk_.advance(parts, *instance, round);
}

void trim_instance::answer(const result<>& committed) {
  answer_with(outcome_, committed, receive_);
}

}  // namespace cenote::manager
