#include "services/manager/index/part_choice.hpp"

#include <algorithm>

namespace cenote::manager {

void part_choice::insert(const found_part& part) noexcept {
  const auto rank_of = [this](const found_part& each) { return order_.rank[each.storage]; };
  const auto end = parts_.begin() + static_cast<std::ptrdiff_t>(count_);
  const auto place = std::ranges::upper_bound(parts_.begin(), end, rank_of(part), {}, rank_of);
  std::copy_backward(place, end, end + 1);
  *place = part;
  // Parts that have nothing of their own any more go.
  const std::size_t count = count_ + 1;
  count_ = 0;
  specs_ = 0;
  for (std::size_t i = 0; i < count; ++i) {
    if ((parts_[i].specs & ~specs_) == 0) continue;
    specs_ |= parts_[i].specs;
    parts_[count_++] = parts_[i];
  }
}

void part_choice::separate() noexcept {
  std::uint64_t before = 0;
  for (found_part& part : std::span(parts_).first(count_)) {
    const std::uint64_t specs = part.specs;
    part.specs &= ~before;
    before |= specs;
  }
}

}  // namespace cenote::manager
