#include "services/manager/index/part_choice.hpp"

#include <algorithm>
#include <span>

namespace cenote::manager {

/// Puts the last part in its place, and takes out those that have nothing of their own any more.
void part_choice::sort_last() {
  const auto rank_of = [this](const found_part& part) { return order_.rank[part.storage]; };
  const auto begin = parts_.begin() + static_cast<std::ptrdiff_t>(begin_);
  const auto last = parts_.end() - 1;
  std::rotate(std::ranges::upper_bound(begin, last, rank_of(*last), {}, rank_of), last, parts_.end());
  specs_ = 0;
  auto end = begin;
  for (auto part = begin; part != parts_.end(); ++part) {
    if ((part->specs & ~specs_) == 0) continue;
    specs_ |= part->specs;
    *end++ = *part;
  }
  parts_.erase(end, parts_.end());
}

void part_choice::separate() noexcept {
  std::uint64_t front = 0;
  for (found_part& part : std::span(parts_).subspan(begin_)) {
    const std::uint64_t specs = part.specs;
    part.specs &= ~front;
    front |= specs;
  }
}

}  // namespace cenote::manager
