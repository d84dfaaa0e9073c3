#include "core/shared_bound.hpp"

#include <algorithm>

namespace cenote {

namespace {

std::string name_of(const share_holder& holder) {
  if (holder.uid == share_holder::other_node) return "node " + holder.group;
  return "uid " + std::to_string(holder.uid);
}

template <class Key>
void lessen(std::map<Key, std::uint64_t>& counts, const Key& key, std::uint64_t count) {
  const auto found = counts.find(key);
  if (found == counts.end()) return;
  found->second -= std::min(found->second, count);
  if (found->second == 0) counts.erase(found);
}

}  // namespace

std::uint64_t user_share(std::uint64_t total, const share_usage& usage) noexcept {
  return fair_share(total, usage.all - usage.user);
}

std::uint64_t group_share(std::uint64_t total, const share_usage& usage) noexcept {
  return fair_share(user_share(total, usage), usage.user - usage.group);
}

std::optional<error> share_refusal(node_bound bound, std::uint64_t total, const share_usage& usage,
                                   const share_holder& holder, std::uint64_t count) {
  const node_bound_row& row = row_of(bound);
  const std::string things(row.things);
  if (usage.all + count > total) {
    return error(error_code::limit_exceeded, "the node has " + std::to_string(usage.all) + " of the " +
                                                 std::to_string(total) + " " + things + " that there may be");
  }
  if (usage.user + count > user_share(total, usage)) {
    const std::string raised = row.total == 0 ? "; raise " + std::string(row.place) : "";
    return error(error_code::limit_exceeded, name_of(holder) + " has " + std::to_string(usage.user) + " of the " +
                                                 std::to_string(total) + " " + things +
                                                 " that there may be, and must leave as many to others" + raised);
  }
  if (row.share == share_kind::user || usage.group + count <= group_share(total, usage)) return std::nullopt;
  return error(error_code::limit_exceeded,
               "instance group `" + holder.group + "` of " + name_of(holder) + " has " + std::to_string(usage.group) +
                   " of the " + std::to_string(user_share(total, usage)) + " " + things +
                   " that the user may have, and must leave as many to the user's other groups");
}

std::optional<error> shared_bound::refusal(const share_holder& holder, std::uint64_t count) const {
  return share_refusal(bound_, total_, taken_by(holder), holder, count);
}

void shared_bound::take(const share_holder& holder, std::uint64_t count) {
  if (count == 0) return;
  all_ += count;
  by_user_[holder.uid] += count;
  by_holder_[holder] += count;
}

void shared_bound::give_back(const share_holder& holder, std::uint64_t count) {
  all_ -= std::min(all_, count);
  lessen(by_user_, holder.uid, count);
  lessen(by_holder_, holder, count);
}

share_usage shared_bound::taken_by(const share_holder& holder) const {
  const auto user = by_user_.find(holder.uid);
  const auto group = by_holder_.find(holder);
  return {.all = all_,
          .user = user == by_user_.end() ? 0 : user->second,
          .group = group == by_holder_.end() ? 0 : group->second};
}

}  // namespace cenote
