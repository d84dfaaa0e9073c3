#include "tiers/nvme/pending_removals.hpp"

#include <algorithm>
#include <utility>

namespace cenote::nvme {

pending_removals::pending_removals(memory::segment kept, std::uint64_t owner) : kept_(std::move(kept)), owner_(owner) {
  if (kept_.size() < kept_bytes) return;
  for (const std::uint64_t at : {std::uint64_t{0}, removal_log::place_bytes}) {
    auto left = placed_removals::decode({kept_.data() + at, removal_log::place_bytes}, owner_);
    if (!left || left->sequence <= sequence_) continue;
    sequence_ = left->sequence;
    what_ = std::move(left->set);
  }
  size_ = what_.size();
}

void pending_removals::add(const removal_set& more) {
  if (more.empty()) return;
  const std::lock_guard lock(mutex_);
  what_.add(more);
  ++version_;
  size_ = what_.size();
  keep();
}

pending_removals::view pending_removals::look() const {
  const std::lock_guard lock(mutex_);
  return {what_, version_};
}

void pending_removals::settle(std::uint64_t version) {
  const std::lock_guard lock(mutex_);
  if (version_ != version || what_.empty()) return;
  what_ = {};
  size_ = 0;
  keep();
}

/// In turn, so that a worker which dies meanwhile leaves the set of before.
void pending_removals::keep() {
  if (kept_.size() < kept_bytes) return;
  ++sequence_;
  const auto bytes = placed_removals{what_, owner_, sequence_}.encode();
  memory::shared_bytes(kept_.data() + (sequence_ % 2 == 0 ? 0 : removal_log::place_bytes), bytes.data(), bytes.size(),
                       "removals.kept"_point);
}

}  // namespace cenote::nvme
