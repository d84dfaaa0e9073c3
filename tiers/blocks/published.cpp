#include "tiers/blocks/published.hpp"

#include <algorithm>
#include <iterator>

namespace cenote::blocks {

namespace {

constexpr std::size_t most_news_keys = 4096;  // of one message: with keys of 64 bytes it fits into a frame

}  // namespace

/// Keys of `what` that the request has already.
result<std::size_t> published::check(const publication& what, const list* known) const {
  const std::size_t has = known == nullptr ? 0 : known->keys.size();
  const std::uint64_t first = what.first.value_or(has);
  if (first > has) {
    return fail(error_code::invalid_argument,
                "the request has " + std::to_string(has) + " keys, the next one is not " + std::to_string(first));
  }
  const std::size_t common = std::min<std::size_t>(has - first, what.keys.size());
  if (common > 0 && !std::equal(what.keys.begin(), what.keys.begin() + static_cast<std::ptrdiff_t>(common),
                                known->keys.begin() + static_cast<std::ptrdiff_t>(first)))
    return fail(error_code::invalid_argument, "the request has other keys at these places");
  const std::size_t more = what.keys.size() - common;
  if (more == 0) return common;
  if (known != nullptr && known->has_ended) return fail(error_code::invalid_argument, "the request has ended");
  if (has > 0 && known->keys.front().size != what.keys.front().size)
    return fail(error_code::invalid_argument, "the request has keys of another width");
  const auto used = used_.find(known == nullptr ? what.by : known->by);
  const std::size_t own = used == used_.end() ? 0 : used->second.keys;
  if (has + more > limits_.request_keys || own + more > limits_.session_keys)
    return fail(error_code::limit_exceeded, "too many keys are published");
  const share_holder& holder = known == nullptr ? what.holder : known->holder;
  if (auto refusal = taken_keys_.refusal(holder, more)) return std::unexpected(std::move(*refusal));
  return common;
}

result<std::uint64_t> published::publish(const publication& what, boot_time now) {
  auto found = lists_.find(what.request);
  const bool is_anew = found != lists_.end() && found->second.is_cut && what.first == 0;  // who appends continues one
  const bool is_new = found == lists_.end() || is_anew;
  const auto common = check(what, is_new ? nullptr : &found->second);
  if (!common) return std::unexpected(common.error());
  if (is_new) {
    const auto known = used_.find(what.by);
    const std::size_t own = known == used_.end() ? 0 : known->second.requests;
    if (own >= limits_.session_requests) return fail(error_code::limit_exceeded, "too many requests are published");
    if (is_anew) taken_requests_.give_back(found->second.holder);
    auto refusal = taken_requests_.refusal(what.holder);
    if (is_anew) taken_requests_.take(found->second.holder);
    if (refusal) return std::unexpected(std::move(*refusal));
    if (is_anew) drop(found);
    ++used_[what.by].requests;
    taken_requests_.take(what.holder);
    list made{
        .number = next_number_++, .by = what.by, .instance = what.instance, .payer = what.payer, .holder = what.holder};
    found = lists_.emplace(what.request, std::move(made)).first;
    by_number_.emplace(found->second.number, &found->second);
    for (const auto& [number, each] : followers_) {
      if (each.request == what.request) found->second.followers.insert(number);
    }
  }
  list& of = found->second;
  const std::size_t more = what.keys.size() - *common;
  used_[of.by].keys += more;
  taken_keys_.take(of.holder, more);
  for (std::size_t i = *common; i < what.keys.size(); ++i) {
    of.keys.push_back(what.keys[i]);
    of.here.push_back(what.here[i]);
    if (what.here[i]) continue;
    const block_key name = reduce_key(what.keys[i].view(), what.request.group);
    awaited_[of.instance].emplace(name, of.number, of.keys.size() - 1);
  }
  of.has_ended |= what.ends;
  advance(of, now);
  return of.keys.size();
}

void published::arrived(instance_number instance, const block_key& key, boot_time now) {
  const auto of = awaited_.find(instance);
  if (of == awaited_.end()) return;
  std::set<list*> changed;
  const auto first = of->second.lower_bound({key, 0, 0});
  auto last = first;
  for (; last != of->second.end() && std::get<0>(*last) == key; ++last) {
    list* const waiting = by_number_.at(std::get<1>(*last));
    waiting->here[std::get<2>(*last)] = true;
    changed.insert(waiting);
  }
  of->second.erase(first, last);
  if (of->second.empty()) awaited_.erase(of);
  for (list* const each : changed) advance(*each, now);
}

void published::advance(list& of, boot_time now) {
  while (of.front < of.here.size() && of.here[of.front]) ++of.front;
  of.until = now + limits_.life;
  tell(of);
}

void published::tell(list& of) {
  for (auto each = of.followers.begin(); each != of.followers.end();) {
    const auto found = followers_.find(*each);
    std::uint64_t& next = found->second.next;
    bool is_over = false;
    do {
      const std::size_t count = next < of.front ? std::min<std::size_t>(of.front - next, most_news_keys) : 0;
      is_over = of.has_ended && next + count >= of.keys.size();
      if (count == 0 && !is_over) break;
      const auto first = of.keys.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(next, of.keys.size()));
      news_.push_back({.number = found->first,
                       .first = next,
                       .keys = {first, first + static_cast<std::ptrdiff_t>(count)},
                       .is_over = is_over,
                       .payer = of.payer});
      next += count;
    } while (!is_over && next < of.front);
    if (is_over) forget_follower(found);
    each = is_over ? of.followers.erase(each) : std::next(each);
  }
}

void published::forget_follower(std::map<std::uint64_t, follower>::iterator position) {
  taken_followers_.give_back(position->second.holder);
  followers_.erase(position);
}

void published::follow(const handover::order& what, boot_time now) {
  if (const auto known = followers_.find(what.number); known != followers_.end()) {
    if (const auto of = lists_.find(known->second.request); of != lists_.end()) of->second.followers.erase(what.number);
    forget_follower(known);
  }
  if (what.ends) return;
  const auto same =
      std::ranges::count_if(followers_, [&](const auto& each) { return each.second.request == what.request; });
  if (taken_followers_.refusal(what.holder) || static_cast<std::size_t>(same) >= limits_.request_followers) {
    news_.push_back(
        {.number = what.number, .first = what.position, .is_over = true, .code = error_code::limit_exceeded});
    return;
  }
  // A tenth more than a part of one: who follows has a clock of its own, and ends it.
  const auto patience = std::min<std::chrono::nanoseconds>(what.patience, std::chrono::hours(1));
  const boot_time until = now + tenths_of(patience) + tenths(1);
  taken_followers_.take(what.holder);
  followers_.emplace(what.number,
                     follower{.request = what.request, .next = what.position, .until = until, .holder = what.holder});
  const auto of = lists_.find(what.request);
  if (of == lists_.end()) return;
  of->second.followers.insert(what.number);
  tell(of->second);
}

/// Of its keys from `first` on, which nobody was told of.
void published::let_go(list& of, const handover::request_name& name, std::size_t first) {
  if (const auto waits = awaited_.find(of.instance); waits != awaited_.end()) {
    for (std::size_t i = std::max(of.front, first); i < of.keys.size(); ++i) {
      if (!of.here[i]) waits->second.erase({reduce_key(of.keys[i].view(), name.group), of.number, i});
    }
    if (waits->second.empty()) awaited_.erase(waits);
  }
  taken_keys_.give_back(of.holder, of.keys.size() - first);
  used_.at(of.by).keys -= of.keys.size() - first;
  of.keys.resize(first);
  of.here.resize(first);
}

void published::drop(list_map::iterator which) {
  list& of = which->second;
  for (const std::uint64_t number : of.followers) {
    const auto found = followers_.find(number);
    const std::uint64_t next = found->second.next;
    if (next == 0) continue;
    news_.push_back({.number = number, .first = next, .is_over = true, .code = error_code::closed, .payer = of.payer});
    forget_follower(found);
  }
  let_go(of, which->first, 0);
  const auto used = used_.find(of.by);
  if (--used->second.requests == 0) used_.erase(used);
  taken_requests_.give_back(of.holder);
  by_number_.erase(of.number);
  lists_.erase(which);
}

void published::release(session_number by, boot_time now) {
  if (!used_.contains(by)) return;
  for (auto& [name, of] : lists_) {
    if (of.by != by || (of.has_ended && of.front == of.keys.size())) continue;
    let_go(of, name, of.front);
    of.has_ended = of.is_cut = true;
    advance(of, now);
  }
}

void published::forget(instance_number instance) {
  for (auto each = lists_.begin(); each != lists_.end();) {
    const auto next = std::next(each);
    if (each->second.instance == instance) drop(each);
    each = next;
  }
}

void published::expire(boot_time now) {
  for (auto each = lists_.begin(); each != lists_.end();) {
    const auto next = std::next(each);
    if (is_due(each->second.until, now)) drop(each);
    each = next;
  }
  for (auto each = followers_.begin(); each != followers_.end();) {
    const auto next = std::next(each);
    if (is_due(each->second.until, now)) follow({.number = each->first, .ends = true}, now);
    each = next;
  }
}

}  // namespace cenote::blocks
