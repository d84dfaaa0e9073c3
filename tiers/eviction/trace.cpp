#include "tiers/eviction/trace.hpp"

#include <algorithm>

namespace cenote::eviction {

namespace {
constexpr std::uint64_t ms_per_tenth = 100;
}

void trace::add(std::uint64_t time_ms, std::uint64_t tokens, std::span<const std::uint64_t> ids) {
  const auto time = static_cast<std::uint32_t>(time_ms / ms_per_tenth);
  requests_.push_back({.first = blocks_.size(),
                       .count = ids.size(),
                       .tokens = tokens,
                       .time = requests_.empty() ? time : std::max(time, requests_.back().time),
                       .partial = ids.size() * tokens_per_block > tokens});
  tokens_ += tokens;
  for (const std::uint64_t id : ids) {
    const auto [known, is_new] = numbers_.try_emplace(id, distinct());
    if (is_new) identities_.push_back(id);
    blocks_.push_back(known->second);
    ids_.push_back(id);
  }
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
