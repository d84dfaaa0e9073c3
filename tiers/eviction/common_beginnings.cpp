#include "tiers/eviction/common_beginnings.hpp"

#include <algorithm>

namespace cenote::eviction {

namespace {
constexpr std::uint32_t partings_of_common = 8;
constexpr std::uint32_t partings_to_stay = 2;  // after halving: what became common does not flicker
constexpr std::uint32_t requests_to_age = 1'024;
constexpr std::size_t most_seen = 8'192;
constexpr std::size_t stride = 8;  // looked ahead, so that a long beginning is neither learnt nor walked block by block
}  // namespace

std::size_t common_beginnings::length(const request& of) {
  if (++requests_ % requests_to_age == 0) age();
  const std::size_t last = of.ids.empty() ? 0 : of.ids.size() - 1;
  std::size_t at = 0;
  while (at < last) {
    if (at + stride < last && passes(of, at + stride)) {
      at += stride + 1;
    } else if (passes(of, at)) {
      ++at;
    } else {
      break;
    }
  }
  return at;
}

/// Whether the block at `at` is common.
bool common_beginnings::passes(const request& of, std::size_t at) {
  const auto tip = static_cast<std::uint32_t>(std::max(of.full(), at + 1) - 1);
  const auto found = seen_.find(of.ids[at]);
  if (found == seen_.end()) {
    if (seen_.size() < most_seen) seen_.emplace(of.ids[at], passage{.tip = of.ids[tip], .depth = tip});
    return false;
  }
  passage& here = found->second;
  const bool goes_on = here.depth < of.ids.size() && of.ids[here.depth] == here.tip;
  if (!goes_on) ++here.partings;
  here.common = here.common || here.partings >= partings_of_common;
  here.tip = of.ids[tip];
  here.depth = tip;
  return here.common;
}

void common_beginnings::age() {
  for (auto& [id, here] : seen_) {
    here.partings /= 2;
    here.common = here.common && here.partings >= partings_to_stay;
  }
  std::erase_if(seen_, [](const auto& each) { return each.second.partings == 0; });
}

}  // namespace cenote::eviction
