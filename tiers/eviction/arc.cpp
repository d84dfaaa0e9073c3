#include "tiers/eviction/arc.hpp"

#include <algorithm>

namespace cenote::eviction {

void arc::resize(std::uint32_t capacity) {
  capacity_ = capacity;
  target_ = std::min(target_, static_cast<double>(capacity));
  keep_bounds();
}

bool arc::should_admit(std::uint64_t id, std::uint32_t /*now*/) {
  returning_ = take_ghost(id);
  expected_ = id;
  return true;
}

void arc::insert(std::uint32_t block, std::uint64_t id, std::uint32_t /*now*/) {
  const ghost_kind returns = expected_ == id ? returning_ : take_ghost(id);
  expected_.reset();
  returning_ = ghost_kind::none;
  if (size() >= capacity_) resize(size() + 1);
  const bool often = returns != ghost_kind::none;
  is_often_.make(block) = often ? 1 : 0;
  (often ? often_ : once_).push_front(block);
  keep_bounds();
}

/// What is known of the block counts here, but its coming back was no miss: the target stays.
void arc::insert_with_history(std::uint32_t block, std::uint32_t /*then*/, std::uint32_t uses) {
  const bool often = uses > 1;
  is_often_.make(block) = often ? 1 : 0;
  (often ? often_ : once_).push_back(block);
  keep_bounds();
}

void arc::import_history(const arc& predecessor) {
  if (predecessor.capacity_ > 0) target_ = predecessor.target_ / predecessor.capacity_ * capacity_;
}

void arc::touch(std::uint32_t block, std::uint32_t /*now*/) {
  if (is_often_[block] != 0) {
    often_.move_to_front(block);
    return;
  }
  once_.remove(block);
  is_often_[block] = 1;
  often_.push_front(block);
}

void arc::refresh(std::uint32_t block, std::uint32_t /*now*/) {
  (is_often_[block] != 0 ? often_ : once_).move_to_front(block);
}

void arc::skip_victim(std::uint32_t block, std::uint32_t /*now*/) {
  const bool often = is_often_[block] != 0;
  block_list& from = often ? often_ : once_;
  const bool alone = from.size() == 1;  // then it would be the victim again
  from.remove(block);
  is_often_[block] = often != alone ? 1 : 0;
  (often != alone ? often_ : once_).push_front(block);
}

void arc::evict(std::uint32_t block, std::uint64_t id, std::uint32_t /*now*/) {
  (is_often_[block] != 0 ? often_ghosts_ : once_ghosts_).push(id);  // what is too much goes when a block comes
  forget(block);
}

void arc::forget(std::uint32_t block) {
  (is_often_[block] != 0 ? often_ : once_).remove(block);
}

std::optional<std::uint32_t> arc::victim() {
  if (size() == 0) return std::nullopt;
  if (often_.empty()) return once_.back();
  if (once_.empty()) return often_.back();
  const auto once = static_cast<double>(once_.size());
  const bool shrink_once = once > target_ || (once == target_ && returning_ == ghost_kind::often);
  return shrink_once ? once_.back() : often_.back();
}

/// Takes the ghost of `id` out, and moves the target towards the list that it came from.
arc::ghost_kind arc::take_ghost(std::uint64_t id) {
  const auto once = static_cast<double>(once_ghosts_.size());
  const auto often = static_cast<double>(often_ghosts_.size());
  if (once_ghosts_.take(id)) {
    target_ = std::min(target_ + std::max(often / once, 1.0), static_cast<double>(capacity_));
    return ghost_kind::once;
  }
  if (often_ghosts_.take(id)) {
    target_ = std::max(target_ - std::max(once / often, 1.0), 0.0);
    return ghost_kind::often;
  }
  return ghost_kind::none;
}

void arc::keep_bounds() {
  while (once_.size() + once_ghosts_.size() > capacity_ && !once_ghosts_.empty()) once_ghosts_.drop_oldest();
  while (size() + ghosts() > 2 * std::size_t{capacity_} && !often_ghosts_.empty()) often_ghosts_.drop_oldest();
}

}  // namespace cenote::eviction
