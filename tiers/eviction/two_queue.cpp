#include "tiers/eviction/two_queue.hpp"

namespace cenote::eviction {

namespace {
constexpr double in_share = 0.25;
constexpr double out_share = 0.5;
}  // namespace

void two_queue::resize(std::uint32_t capacity) {
  capacity_ = capacity;
  arrivals_capacity_ = static_cast<std::uint32_t>(capacity * in_share);
  ghosts_.bound(static_cast<std::size_t>(capacity * out_share));
}

bool two_queue::should_admit(std::uint64_t id, std::uint32_t /*now*/) {
  returning_.reset();
  if (ghosts_.take(id)) returning_ = id;
  return true;
}

void two_queue::insert(std::uint32_t block, std::uint64_t id, std::uint32_t /*now*/) {
  const bool returns = returning_ == id || ghosts_.take(id);
  returning_.reset();
  if (size() >= capacity_) resize(size() + 1);
  in_main_.make(block) = returns ? 1 : 0;
  (returns ? main_ : arrivals_).push_front(block);
}

void two_queue::insert_with_history(std::uint32_t block, std::uint32_t /*then*/, std::uint32_t uses) {
  const bool often = uses > 1;
  if (size() >= capacity_) resize(size() + 1);
  in_main_.make(block) = often ? 1 : 0;
  (often ? main_ : arrivals_).push_back(block);
}

void two_queue::touch(std::uint32_t block, std::uint32_t /*now*/) {
  if (in_main_[block] != 0) main_.move_to_front(block);
}

void two_queue::refresh(std::uint32_t block, std::uint32_t now) {
  touch(block, now);
}

void two_queue::skip_victim(std::uint32_t block, std::uint32_t /*now*/) {
  const bool in_main = in_main_[block] != 0;
  block_list& from = in_main ? main_ : arrivals_;
  const bool alone = from.size() == 1;  // then it would be the victim again
  from.remove(block);
  in_main_[block] = in_main != alone ? 1 : 0;
  (in_main != alone ? main_ : arrivals_).push_front(block);
}

void two_queue::evict(std::uint32_t block, std::uint64_t id, std::uint32_t /*now*/) {
  if (in_main_[block] == 0) ghosts_.push(id);
  forget(block);
}

void two_queue::forget(std::uint32_t block) {
  (in_main_[block] != 0 ? main_ : arrivals_).remove(block);
}

std::optional<std::uint32_t> two_queue::victim() {
  if (size() == 0) return std::nullopt;
  if (arrivals_.size() > arrivals_capacity_ || main_.empty()) return arrivals_.back();
  return main_.back();
}

}  // namespace cenote::eviction
