#include "tiers/eviction/lfu.hpp"

namespace cenote::eviction {

void lfu::insert(std::uint32_t block, std::uint64_t /*id*/, std::uint32_t /*now*/) {
  const std::uint32_t home = bucket_after(none, 1);
  home_.make(block) = home;
  buckets_[home].blocks.push_front(block);
  ++size_;
}

void lfu::touch(std::uint32_t block, std::uint32_t /*now*/) {
  const std::uint32_t from = home_[block];
  const std::uint32_t to = bucket_after(from, buckets_[from].uses + 1);
  leave(block);
  buckets_[to].blocks.push_front(block);
  home_[block] = to;
}

void lfu::refresh(std::uint32_t block, std::uint32_t /*now*/) {
  buckets_[home_[block]].blocks.move_to_front(block);
}

void lfu::skip_victim(std::uint32_t block, std::uint32_t now) {
  if (buckets_[home_[block]].blocks.size() > 1) {
    refresh(block, now);
  } else {
    touch(block, now);
  }
}

void lfu::forget(std::uint32_t block) {
  leave(block);
  --size_;
}

std::optional<std::uint32_t> lfu::victim() {
  if (first_ == none) return std::nullopt;
  return buckets_[first_].blocks.back();
}

/// The bucket of `uses`, which is more than `lower` has and at most what the one after it has; `lower` none: the first.
std::uint32_t lfu::bucket_after(std::uint32_t lower, std::uint64_t uses) {
  const std::uint32_t higher = lower == none ? first_ : buckets_[lower].higher;
  if (higher != none && buckets_[higher].uses == uses) return higher;
  std::uint32_t made = none;
  if (free_.empty()) {
    made = static_cast<std::uint32_t>(buckets_.size());
    buckets_.push_back({.blocks = block_list(*links_)});
  } else {
    made = free_.back();
    free_.pop_back();
  }
  buckets_[made].uses = uses;
  buckets_[made].lower = lower;
  buckets_[made].higher = higher;
  (lower == none ? first_ : buckets_[lower].higher) = made;
  if (higher != none) buckets_[higher].lower = made;
  return made;
}

void lfu::leave(std::uint32_t block) {
  const std::uint32_t number = home_[block];
  bucket& from = buckets_[number];
  from.blocks.remove(block);
  if (!from.blocks.empty()) return;
  (from.lower == none ? first_ : buckets_[from.lower].higher) = from.higher;
  if (from.higher != none) buckets_[from.higher].lower = from.lower;
  free_.push_back(number);
}

}  // namespace cenote::eviction
