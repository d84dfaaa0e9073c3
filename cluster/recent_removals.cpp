#include "cluster/recent_removals.hpp"

#include <algorithm>

namespace cenote::cluster {

void recent_removals::begin(instance_identity identity, std::span<const block_key> keys, steady_time now) {
  drop_ended(now);
  for (const block_key& each : keys) {
    const pool_key of{identity, each};
    if (const auto known = ends_.find(of); known != ends_.end()) {
      ++known->second.open;
    } else if (const auto all = whole_.find(identity); all != whole_.end()) {
      ++all->second.open;
    } else {
      ends_.emplace(of, removed{.open = 1});
      ++sizes_[identity];
      order_.push_back(of);
      if (ends_.size() > most_keys) make_room();
    }
  }
}

void recent_removals::end(instance_identity identity, std::span<const block_key> keys, steady_time lag_end,
                          steady_time now) {
  for (const block_key& each : keys) {
    const auto known = ends_.find({identity, each});
    const auto all = whole_.find(identity);
    const bool is_alone = known != ends_.end() && known->second.open != 0;
    if (!is_alone && all == whole_.end()) continue;
    removed& of = is_alone ? known->second : all->second;
    if (of.open != 0) --of.open;
    of.lag_end = std::max(of.lag_end, lag_end);
  }
  drop_ended(now);
}

bool recent_removals::has(instance_identity identity, const block_key& key, steady_time now) const noexcept {
  if (ends_.empty() && whole_.empty()) return false;
  if (const auto all = whole_.find(identity); all != whole_.end() && !all->second.is_over(now)) return true;
  const auto found = ends_.find({identity, key});
  return found != ends_.end() && !found->second.is_over(now);
}

/// The oldest ones. One that stands for longer keeps those after it in memory, not in force.
void recent_removals::drop_ended(steady_time now) {
  while (!order_.empty() && ends_.at(order_.front()).is_over(now)) {
    drop(order_.front());
    order_.pop_front();
  }
  std::erase_if(whole_, [now](const auto& each) { return each.second.is_over(now); });
}

void recent_removals::drop(const pool_key& key) {
  const auto size = sizes_.find(key.identity);
  if (--size->second == 0) sizes_.erase(size);
  ends_.erase(key);
}

/// The instance with most keys stands here as a whole until the last of their removals, and its lag, are over.
void recent_removals::make_room() {
  const instance_identity largest =
      std::ranges::max_element(sizes_, {}, [](const auto& each) { return each.second; })->first;
  removed& all = whole_[largest];
  std::erase_if(ends_, [&](const auto& row) {
    if (row.first.identity != largest) return false;
    all.open += row.second.open;
    all.lag_end = std::max(all.lag_end, row.second.lag_end);
    return true;
  });
  sizes_.erase(largest);
  std::erase_if(order_, [&](const pool_key& each) { return each.identity == largest; });
}

}  // namespace cenote::cluster
