#include "cluster/recent_removals.hpp"

#include <algorithm>

namespace cenote::cluster {

void recent_removals::note(instance_identity identity, std::span<const block_key> keys, steady_time end,
                           steady_time now) {
  drop_ended(now);
  for (const block_key& each : keys) {
    const pool_key of{identity, each};
    if (const auto known = ends_.find(of); known != ends_.end()) {
      known->second = end;
    } else if (ends_.size() < most_keys) {
      ends_.emplace(of, end);
      order_.push_back(of);
    } else {
      auto& last = whole_[identity];
      last = std::max(last, end);
    }
  }
}

bool recent_removals::has(instance_identity identity, const block_key& key, steady_time now) const noexcept {
  if (ends_.empty()) return false;
  if (const auto all = whole_.find(identity); all != whole_.end() && all->second > now) return true;
  const auto found = ends_.find({identity, key});
  return found != ends_.end() && found->second > now;
}

/// The oldest ones. One that stands for longer keeps those after it in memory, not in force.
void recent_removals::drop_ended(steady_time now) {
  while (!order_.empty() && ends_.at(order_.front()) <= now) {
    ends_.erase(order_.front());
    order_.pop_front();
  }
  std::erase_if(whole_, [now](const auto& each) { return each.second <= now; });
}

}  // namespace cenote::cluster
