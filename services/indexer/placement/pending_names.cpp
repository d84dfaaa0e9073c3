#include "services/indexer/placement/pending_names.hpp"

#include <new>

namespace cenote::indexer {

namespace {

medium_mask mask_of(medium_number medium) noexcept {
  return static_cast<medium_mask>(1U << medium);
}

}  // namespace

bool pending_names::add(std::uint64_t hash, medium_number medium) noexcept {
  try {
    const auto found = names_.find(hash);
    if (found == names_.end() && names_.size() == most_names) return false;
    names_[hash] |= mask_of(medium);
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
}

bool pending_names::remove(std::uint64_t hash, medium_number medium) noexcept {
  const auto found = names_.find(hash);
  if (found == names_.end() || (found->second & mask_of(medium)) == 0) return false;
  found->second = static_cast<medium_mask>(found->second & ~mask_of(medium));
  if (found->second == 0) names_.erase(found);
  return true;
}

void pending_names::clear(medium_number medium) noexcept {
  const auto others = static_cast<medium_mask>(~mask_of(medium));
  for (auto& [hash, media] : names_) media = static_cast<medium_mask>(media & others);
  std::erase_if(names_, [](const auto& name) { return name.second == 0; });
}

medium_mask pending_names::extract(std::uint64_t hash) noexcept {
  const auto found = names_.find(hash);
  if (found == names_.end()) return 0;
  const medium_mask media = found->second;
  names_.erase(found);
  return media;
}

}  // namespace cenote::indexer
