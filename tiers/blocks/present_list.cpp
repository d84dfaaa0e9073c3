#include "tiers/blocks/present_list.hpp"

#include <algorithm>

namespace cenote::blocks {

block_place present_list::list(block_place first, std::size_t steps, std::vector<tier_change>& blocks) const {
  constexpr std::size_t steps_of_slab = 16;  // also of one without blocks
  auto next = state_.by_record.upper_bound(static_cast<std::uint32_t>(std::min<block_place>(first, ~std::uint32_t{0})));
  if (next != state_.by_record.begin()) --next;  // the slab that `first` lies in, or one that has been walked through
  for (std::size_t looked = 0; next != state_.by_record.end(); ++next, looked += steps_of_slab) {
    const slab& home = *next->second;
    const block_place begin = home.what.first_record;
    const block_place end = begin + home.what.count;
    if (end <= first || home.present == 0) continue;
    for (block_place at = std::max(begin, first); at < end; ++at, ++looked) {
      if (looked >= steps) return at;
      const memory::block_record& record = state_.records[static_cast<std::uint32_t>(at)];
      if (record.state() != memory::block_state::present) continue;
      blocks.push_back({tier_change_kind::stored, home.owner->number, home.what.group, record.get_key()});
    }
  }
  return end_of_places;
}

std::optional<change_subject> present_list::subject_of(std::uint32_t instance) const {
  const auto found = state_.instances.find(instance);
  if (found == state_.instances.end()) return std::nullopt;
  const instance_spec& spec = found->second->spec;
  return change_subject{instance, spec.model, static_cast<std::uint32_t>(spec.groups.size())};
}

}  // namespace cenote::blocks
