#include "core/shared_bound.hpp"

#include <algorithm>

namespace cenote {

namespace {

std::string name_of(const share_holder& holder) {
  if (holder.uid == share_holder::other_node) return "node " + holder.group;
  return "uid " + std::to_string(holder.uid);
}

template <class Key>
void lessen(std::map<Key, std::uint64_t>& counts, const Key& key, std::uint64_t less) {
  const auto found = counts.find(key);
  if (found == counts.end()) return;
  found->second -= std::min(found->second, less);
  if (found->second == 0) counts.erase(found);
}

}  // namespace

std::uint64_t user_share(std::uint64_t total, const share_usage& taken) noexcept {
  return fair_share(total, taken.all - taken.user);
}

std::uint64_t group_share(std::uint64_t total, const share_usage& taken) noexcept {
  return fair_share(user_share(total, taken), taken.user - taken.group);
}

std::optional<error> share_refusal(node_bound bound, std::uint64_t total, const share_usage& taken,
                                   const share_holder& holder, std::uint64_t more) {
  const node_bound_row& row = row_of(bound);
  const std::string things(row.things);
  if (taken.all + more > total) {
    return error(error_code::limit_exceeded, "the node has " + std::to_string(taken.all) + " of the " +
                                                 std::to_string(total) + " " + things + " that there may be");
  }
  if (taken.user + more > user_share(total, taken)) {
    return error(error_code::limit_exceeded, name_of(holder) + " has " + std::to_string(taken.user) + " of the " +
                                                 std::to_string(total) + " " + things +
                                                 " that there may be, and must leave as many to others");
  }
  if (row.share == share_kind::user || taken.group + more <= group_share(total, taken)) return std::nullopt;
  return error(error_code::limit_exceeded,
               "instance group `" + holder.group + "` of " + name_of(holder) + " has " + std::to_string(taken.group) +
                   " of the " + std::to_string(user_share(total, taken)) + " " + things +
                   " that the user may have, and must leave as many to the user's other groups");
}

std::optional<error> shared_bound::refusal(const share_holder& holder, std::uint64_t more) const {
  return share_refusal(bound_, total_, taken_by(holder), holder, more);
}

void shared_bound::take(const share_holder& holder, std::uint64_t more) {
  if (more == 0) return;
  all_ += more;
  by_user_[holder.uid] += more;
  by_holder_[holder] += more;
}

void shared_bound::give_back(const share_holder& holder, std::uint64_t less) {
  all_ -= std::min(all_, less);
  lessen(by_user_, holder.uid, less);
  lessen(by_holder_, holder, less);
}

share_usage shared_bound::taken_by(const share_holder& holder) const {
  const auto user = by_user_.find(holder.uid);
  const auto group = by_holder_.find(holder);
  return {.all = all_,
          .user = user == by_user_.end() ? 0 : user->second,
          .group = group == by_holder_.end() ? 0 : group->second};
}

}  // namespace cenote
