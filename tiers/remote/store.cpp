#include "tiers/remote/store.hpp"

#include <algorithm>

#include "core/stored_identity.hpp"

namespace cenote::remote {

void store::bind(std::uint32_t instance, const instance_spec& spec, bool leaves) {
  instances_.insert_or_assign(instance, bound{cenote::identity_of(spec), leaves});
}

std::optional<instance_identity> store::identity_of(std::uint32_t instance) const {
  const auto found = instances_.find(instance);
  if (found == instances_.end()) return std::nullopt;
  return found->second.identity;
}

bool store::may_leave(std::uint32_t instance) const {
  const auto found = instances_.find(instance);
  return found != instances_.end() && found->second.leaves;
}

void store::put(std::span<const transfer> blocks, const clock_reading& now) {
  for (const transfer& each : blocks) {
    moving put{.what = each};
    if (each.occasion != write_occasion::arrival) put.missed = time_before(each.arrival, now);
    begin(std::move(put), now.steady);
  }
}

void store::get(std::span<const transfer> blocks, steady_time now) {
  for (const transfer& each : blocks) begin({.what = each, .up = true}, now);
}

void store::begin(moving block, steady_time now) {
  const transfer& what = block.what;
  const bool up = block.up;
  const transfer_result refusal = up ? transfer_result::missing : transfer_result::dropped;
  const auto of = instances_.find(what.instance);
  if (of == instances_.end() || !of->second.leaves) {
    if (!up) ++counters.kept_back;
    if (!what.memory.empty()) outcomes_.push_back({what.token, refusal});
    return;
  }
  if (!up && what.memory.empty()) {
    ++counters.dropped;
    return;
  }
  const auto to = next_place(0, now);
  if (!to) {
    if (!up) ++counters.dropped;
    outcomes_.push_back({what.token, refusal});
    return;
  }
  block.identity = of->second.identity;
  block.at = *to;
  const std::uint64_t token = what.token;
  queue(*to, moving_.try_emplace(token, std::move(block)).first->second);
}

/// The first from `first` on that may be asked.
std::optional<backend_number> store::next_place(backend_number first, steady_time now) {
  for (backend_number number = first; number < places_.size(); ++number) {
    if (places_[number].stands && places_[number].guard.admits(now)) return number;
  }
  return std::nullopt;
}

void store::queue(backend_number to, const moving& what) {
  const call::kind kind = what.up ? call::kind::get : call::kind::put;
  const auto has_room = [&](const call& each) { return each.to == to && each.what == kind; };
  auto found = std::ranges::find_if(calls_, has_room);
  if (found == calls_.end()) found = calls_.insert(calls_.end(), call{.what = kind, .to = to, .items = {}});
  found->items.push_back({.token = what.what.token,
                          .name = {.identity = what.identity, .group = what.what.group, .full = what.what.full},
                          .memory = what.what.memory,
                          .hash = what.what.checksum,
                          .from = what.what.from,
                          .missed = what.missed});
}

void store::answered(backend_number from, call::kind what, std::span<const item_outcome> outcomes, steady_time now) {
  for (const item_outcome& each : outcomes) {
    const auto found = moving_.find(each.token);
    if (found == moving_.end() || found->second.at != from || found->second.up != (what == call::kind::get)) continue;
    const bool is_of_place = each.what != item_result::refused && each.what != item_result::unknown;
    if (is_of_place) places_[from].guard.note(each.what != item_result::unreachable, now);
    if (found->second.up) {
      end_get(found, each, now);
    } else {
      end_put(found, each);
    }
  }
}

void store::end(std::unordered_map<std::uint64_t, moving>::iterator of, transfer_result how, bool is_copy) {
  outcomes_.push_back({of->first, how, is_copy});
  moving_.erase(of);
}

void store::end_put(std::unordered_map<std::uint64_t, moving>::iterator of, const item_outcome& outcome) {
  const moving& what = of->second;
  const item_result how = outcome.what;
  const bool was_turned_down =
      how == item_result::full || how == item_result::refused || how == item_result::own || how == item_result::wrong;
  if (what.unwanted && !was_turned_down) {  // also after an answer that did not come: the value may have landed
    late_.push_back({what.at, what.identity, what.what.key});
  }
  if (how == item_result::full) ++counters.full;
  if (how == item_result::wrong) ++counters.wrong;
  if (how == item_result::unreachable) ++counters.unreachable;
  const bool is_counted = how == item_result::refused && what.what.occasion == write_occasion::catch_up;
  if ((how == item_result::refused && !is_counted) || how == item_result::unknown) ++counters.dropped;
  const bool kept = how == item_result::done && !what.unwanted;
  if (kept) {
    ++counters.put;
    counters.put_bytes += what.what.memory.size();
  }
  const transfer_result otherwise = how == item_result::wrong ? transfer_result::altered : transfer_result::dropped;
  end(of, kept ? transfer_result::done : otherwise, outcome.is_copy);
}

void store::end_get(std::unordered_map<std::uint64_t, moving>::iterator of, const item_outcome& outcome,
                    steady_time now) {
  moving& what = of->second;
  const item_result how = outcome.what;
  if (how == item_result::unreachable) ++counters.unreachable;
  if (how == item_result::wrong) {
    ++counters.wrong;
    what.found_wrong = true;
  }
  if (what.unwanted) return end(of, transfer_result::missing);
  if (how == item_result::done) {
    ++counters.got;
    counters.got_bytes += what.what.memory.size();
    return end(of, transfer_result::done, outcome.is_copy);
  }
  if (const auto next = next_place(what.at + 1, now)) {
    what.at = *next;
    return queue(*next, what);
  }
  if (how == item_result::missing && !what.found_wrong) ++counters.misses;
  end(of, what.found_wrong ? transfer_result::failed : transfer_result::missing);
}

void store::set_standing(backend_number of, const result<void>& how) {
  if (of >= places_.size()) return;
  if (how && !places_[of].stands) places_[of].guard.close();  // it has just answered
  places_[of].stands = how.has_value();
  places_[of].why = how ? std::string() : how.error().describe();
}

void store::forget(std::uint32_t instance, std::span<const block_key> keys) {
  if (moving_.empty()) return;
  std::vector<block_key> sorted(keys.begin(), keys.end());
  std::ranges::sort(sorted);
  for (auto& [token, each] : moving_) {
    if (each.what.instance != instance) continue;
    each.unwanted |= keys.empty() || std::ranges::binary_search(sorted, each.what.key);
  }
}

void store::forget_all() {
  for (auto& [token, each] : moving_) each.unwanted = true;
}

std::vector<backend_number> store::askable(steady_time now) {
  std::vector<backend_number> all;
  for (backend_number number = 0; number < places_.size(); ++number) {
    if (places_[number].stands && places_[number].guard.admits(now)) all.push_back(number);
  }
  return all;
}

void store::located(backend_number from, bool answered, steady_time now) {
  redis::breaker& guard = places_.at(from).guard;
  if (guard.state(now) != redis::breaker_state::closed) guard.note(answered, now);
}

bool store::is_standing(steady_time now) const {
  return std::ranges::any_of(
      places_, [&](const place& each) { return each.stands && each.guard.state(now) != redis::breaker_state::open; });
}

store_gauges store::gauges() const {
  store_gauges all;
  for (const auto& [token, each] : moving_) {
    ++(each.up ? all.getting : all.putting);
    (each.up ? all.getting_bytes : all.putting_bytes) += each.what.memory.size();
  }
  all.serving = static_cast<std::uint64_t>(std::ranges::count(places_, true, &place::stands));
  return all;
}

backend_status store::status_of(backend_number number, steady_time now) const {
  const place& of = places_.at(number);
  return {.stands = of.stands, .breaker = of.guard.state(now), .why = of.why};
}

}  // namespace cenote::remote
