#include "tiers/prefetch/lookups.hpp"

#include <algorithm>

namespace cenote::prefetch {

void lookups::begin(std::uint64_t number, request incoming, nanoseconds longest, time_point now) {
  const auto absent = std::ranges::find(incoming.places, place::absent, &spot::what);
  const auto end = static_cast<std::size_t>(absent - incoming.places.begin());
  inquiry asks(incoming.places, end, incoming.asks);
  const nanoseconds patience = std::min(incoming.patience, longest);
  if (asks.first() == end || incoming.asks.none() || patience <= nanoseconds(0)) {
    return say(incoming.session, incoming.number, error_code::ok, asks.first());
  }
  if (open_of(incoming.session) >= max_session_lookups) {
    return say(incoming.session, incoming.number, error_code::limit_exceeded, 0);
  }
  auto sent = asks.send(number, incoming.instance, incoming.group, incoming.keys, now, patience);
  std::ranges::move(sent, std::back_inserter(questions_));
  open_.emplace(number, lookup{incoming.session, incoming.number, std::move(incoming.places), std::move(asks)});
}

void lookups::on_told(std::uint64_t number, edge_number edge, const std::vector<bool>& held) {
  const auto found = open_.find(number);
  if (found == open_.end()) return;
  found->second.asks.take(edge, held, found->second.places);
  if (!found->second.asks.is_answered()) return;
  close(found->second);
  open_.erase(found);
}

void lookups::on_session_closed(std::uint64_t session) {
  std::erase_if(open_, [&](const auto& each) { return each.second.session == session; });
}

void lookups::expire(time_point now) {
  for (auto each = open_.begin(); each != open_.end();) {
    if (each->second.asks.until() > now) {
      ++each;
    } else {
      close(each->second);
      each = open_.erase(each);
    }
  }
}

std::optional<time_point> lookups::wake_at() const noexcept {
  std::optional<time_point> next;
  for (const auto& [number, each] : open_) next = next ? std::min(*next, each.asks.until()) : each.asks.until();
  return next;
}

std::size_t lookups::open_of(std::uint64_t session) const noexcept {
  return static_cast<std::size_t>(
      std::ranges::count_if(open_, [&](const auto& each) { return each.second.session == session; }));
}

void lookups::close(lookup& done) {
  say(done.session, done.request, error_code::ok, done.asks.close(done.places));
}

void lookups::say(std::uint64_t session, std::uint32_t request, error_code code, std::uint64_t length) {
  answer made{.session = session, .completion = {}};
  made.completion.request = request;
  made.completion.kind = memory::completion_kind::done;
  made.completion.code = static_cast<std::uint16_t>(code);
  made.completion.value = length;
  answers_.push_back(made);
}

}  // namespace cenote::prefetch
