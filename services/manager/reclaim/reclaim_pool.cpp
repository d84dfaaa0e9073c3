#include "services/manager/reclaim/reclaim_pool.hpp"

namespace cenote::manager {

result<std::unique_ptr<reclaim_pool>> reclaim_pool::make(std::string_view policy) {
  std::unique_ptr<reclaim_pool> pool(new reclaim_pool);
  auto made = eviction::make_policy(policy, pool->links_);
  if (!made) return std::unexpected(made.error());
  pool->policy_ = std::move(*made);
  return pool;
}

bool reclaim_pool::leave(std::uint32_t record) noexcept {
  if (record >= members_.size() || !members_[record]) return false;
  members_[record] = false;
  return true;
}

void reclaim_pool::insert(std::uint32_t record, std::uint64_t id, std::uint32_t now) {
  if (record >= members_.size()) {
    links_.cover((record | 0xfffU) + 1);  // some at a time
    members_.resize((record | 0xfffU) + 1);
  }
  if (members_[record]) return policy_->touch(record, now);
  members_[record] = true;
  policy_->insert(record, id, now);
}

void reclaim_pool::touch(std::uint32_t record, std::uint32_t now) {
  if (record < members_.size() && members_[record]) policy_->touch(record, now);
}

void reclaim_pool::forget(std::uint32_t record) {
  if (leave(record)) policy_->forget(record);
}

void reclaim_pool::evict(std::uint32_t record, std::uint64_t id, std::uint32_t now) {
  if (leave(record)) policy_->evict(record, id, now);
}

void reclaim_pool::put_back(std::uint32_t record, std::uint32_t last_use, std::uint32_t uses) {
  if (record >= members_.size() || members_[record]) return;
  members_[record] = true;
  policy_->insert_with_history(record, last_use, uses);
}

}  // namespace cenote::manager
