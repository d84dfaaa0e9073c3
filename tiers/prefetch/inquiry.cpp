#include "tiers/prefetch/inquiry.hpp"

#include <algorithm>

namespace cenote::prefetch {

namespace {

constexpr int part_for_the_way =
    8;  // of the time: an answer at the end of a tier's patience comes in time all the same

}  // namespace

inquiry::inquiry(const std::vector<spot>& places, std::size_t end, std::bitset<max_edges> asks)
    : first_(end), reach_(end), open_(asks) {
  for (std::size_t i = 0; i < end; ++i) {
    if (places[i].what != place::unasked) continue;
    if (which_.empty()) first_ = i;
    if (which_.size() == key_query::most) {
      reach_ = i;
      break;
    }
    which_.push_back(static_cast<std::uint32_t>(i));
  }
}

std::vector<question> inquiry::send(std::uint64_t number, std::uint32_t instance, std::uint32_t group,
                                    const std::vector<full_key>& keys, time_point now, nanoseconds patience) {
  sent_ = true;
  until_ = now + patience;
  key_query query{.instance = instance, .group = group, .keys = {}, .patience = {}};
  query.patience = std::chrono::floor<std::chrono::milliseconds>(patience - patience / part_for_the_way);
  query.keys.reserve(which_.size());
  for (const std::uint32_t each : which_) query.keys.push_back(keys[each]);
  std::vector<question> all;
  for (edge_number edge = 0; edge < max_edges; ++edge) {
    if (open_[edge]) all.push_back({number, edge, query});
  }
  return all;
}

void inquiry::take(edge_number edge, const std::vector<bool>& held, std::vector<spot>& places) {
  if (edge >= max_edges || !open_[edge]) return;
  open_.reset(edge);
  for (std::size_t i = 0; i < std::min(held.size(), which_.size()); ++i) {
    spot& at = places[which_[i]];
    const bool is_better = at.what == place::unasked || (at.what == place::far && at.edge > edge);
    if (held[i] && is_better) at = {place::far, static_cast<std::uint8_t>(edge)};
  }
}

std::size_t inquiry::close(std::vector<spot>& places) const {
  for (const std::uint32_t each : which_) {
    if (places[each].what == place::unasked) places[each].what = place::absent;
  }
  const auto begin = places.begin() + static_cast<std::ptrdiff_t>(first_);
  const auto end = places.begin() + static_cast<std::ptrdiff_t>(reach_);
  return static_cast<std::size_t>(std::find_if(begin, end, [](spot at) { return at.what == place::absent; }) -
                                  places.begin());
}

}  // namespace cenote::prefetch
