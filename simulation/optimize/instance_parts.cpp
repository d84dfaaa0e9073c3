#include "simulation/optimize/instance_parts.hpp"

#include <algorithm>
#include <numeric>

namespace cenote::simulation {

instance_parts::instance_parts(const trace& whole, std::span<const std::uint32_t> groups)
    : whole_(whole), order_(whole.requests().size()) {
  std::iota(order_.begin(), order_.end(), std::size_t{0});
  const auto instance = [&](std::size_t place) {
    const std::uint32_t number = whole_.requests()[place].instance;
    return groups.empty() ? number : groups[number];
  };
  std::ranges::stable_sort(order_, {}, instance);
  for (std::size_t i = 0; i < order_.size(); ++i) {
    if (i > 0 && instance(order_[i]) == instances_.back()) continue;
    instances_.push_back(instance(order_[i]));
    begins_.push_back(i);
  }
  begins_.push_back(order_.size());
}

std::size_t instance_parts::count_within(std::size_t place, std::size_t count) const {
  const auto requests = places(place);
  return static_cast<std::size_t>(std::ranges::lower_bound(requests, count) - requests.begin());
}

trace instance_parts::part(std::size_t place) const {
  trace made(whole_.block_tokens());
  for (std::size_t i = begins_[place]; i < begins_[place + 1]; ++i) {
    const trace::entry& each = whole_.requests()[order_[i]];
    made.add(trace::arrival_of(each), whole_.ids(each));
  }
  return made;
}

}  // namespace cenote::simulation
