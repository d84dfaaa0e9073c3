#include "tiers/eviction/trace.hpp"

#include <algorithm>
#include <utility>

namespace cenote::eviction {

namespace {

constexpr std::uint64_t ms_per_tenth = 100;
constexpr std::size_t least_places = 1024;

/// Where the search for an identity begins; `places` is a power of two.
std::size_t start_of(std::uint64_t id, std::size_t places) noexcept {
  id = (id ^ (id >> 32)) * 0x9e3779b97f4a7c15ULL;
  return (id ^ (id >> 29)) & (places - 1);
}

}  // namespace

void trace::add(std::uint64_t time_ms, std::uint64_t tokens, std::span<const std::uint64_t> ids) {
  const auto time = static_cast<std::uint32_t>(time_ms / ms_per_tenth);
  requests_.push_back({.first = blocks_.size(),
                       .count = ids.size(),
                       .tokens = tokens,
                       .time = requests_.empty() ? time : std::max(time, requests_.back().time),
                       .partial = ids.size() * tokens_per_block > tokens});
  tokens_ += tokens;
  for (const std::uint64_t id : ids) {
    blocks_.push_back(number_of(id));
    ids_.push_back(id);
  }
}

std::uint32_t trace::number_of(std::uint64_t id) {
  if (identities_.size() * 2 >= numbers_.size()) grow();
  for (std::size_t at = start_of(id, numbers_.size());; at = (at + 1) & (numbers_.size() - 1)) {
    place& here = numbers_[at];
    if (here.number != 0 && here.id == id) return here.number - 1;
    if (here.number != 0) continue;
    here = {.id = id, .number = distinct() + 1};
    identities_.push_back(id);
    return here.number - 1;
  }
}

void trace::grow() {
  std::vector<place> larger(std::max(least_places, numbers_.size() * 2));
  for (const place& each : numbers_) {
    if (each.number == 0) continue;
    std::size_t at = start_of(each.id, larger.size());
    while (larger[at].number != 0) at = (at + 1) & (larger.size() - 1);
    larger[at] = each;
  }
  numbers_ = std::move(larger);
}

trace trace::first(std::size_t count) const {
  trace made;
  for (const entry& each : requests().first(std::min(count, requests_.size()))) {
    made.add(each.time * ms_per_tenth, each.tokens, ids(each));
  }
  return made;
}

trace trace::full_blocks(std::size_t count) const {
  trace made;
  for (const entry& each : requests().first(std::min(count, requests_.size()))) {
    const std::size_t full = std::min<std::uint64_t>(each.count, each.tokens / tokens_per_block);
    made.add(each.time * ms_per_tenth, each.tokens, ids(each).first(full));
  }
  return made;
}

trace trace::at_speed(double factor) const {
  trace made = *this;
  for (entry& each : made.requests_) {
    each.time = factor > 0 ? static_cast<std::uint32_t>(std::min(each.time / factor, 4e9)) : 0;
  }
  return made;
}

std::vector<std::uint32_t> trace::next_uses() const {
  constexpr std::uint32_t never = ~std::uint32_t{0};
  std::vector<std::uint32_t> next(blocks_.size());
  std::vector<std::uint32_t> seen(distinct(), never);
  for (std::size_t at = blocks_.size(); at-- > 0;) {
    next[at] = seen[blocks_[at]];
    seen[blocks_[at]] = static_cast<std::uint32_t>(at);
  }
  return next;
}

}  // namespace cenote::eviction
