#include "cluster/recent_removals.hpp"

#include <algorithm>

namespace cenote::cluster {

void recent_removals::begin(instance_identity identity, std::span<const block_key> keys, steady_time now) {
  drop_ended(now);
  for (const block_key& each : keys) {
    const pool_key of{identity, each};
    if (const auto known = ends_.find(of); known != ends_.end()) {
      ++known->second.open;
    } else if (ends_.size() < most_keys) {
      ends_.emplace(of, removed{.open = 1});
      order_.push_back(of);
    } else {
      ++whole_[identity].open;
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
  if (ends_.empty()) return false;
  if (const auto all = whole_.find(identity); all != whole_.end() && !all->second.is_over(now)) return true;
  const auto found = ends_.find({identity, key});
  return found != ends_.end() && !found->second.is_over(now);
}

/// The oldest ones. One that stands for longer keeps those after it in memory, not in force.
void recent_removals::drop_ended(steady_time now) {
  while (!order_.empty() && ends_.at(order_.front()).is_over(now)) {
    ends_.erase(order_.front());
    order_.pop_front();
  }
  std::erase_if(whole_, [now](const auto& each) { return each.second.is_over(now); });
}

}  // namespace cenote::cluster
