#include "cluster/recent_loans.hpp"

namespace cenote::cluster {

void recent_loans::note(instance_identity identity, const block_key& key, const std::string& node) {
  const pool_key of{identity, key};
  const auto [found, is_new] = nodes_.insert_or_assign(of, node);
  if (!is_new) return;
  order_.push_back(of);
  if (order_.size() <= most) return;
  nodes_.erase(order_.front());
  order_.pop_front();
}

const std::string& recent_loans::borrower(instance_identity identity, const block_key& key) const noexcept {
  static const std::string nobody;
  const auto found = nodes_.find({identity, key});
  return found == nodes_.end() ? nobody : found->second;
}

}  // namespace cenote::cluster
