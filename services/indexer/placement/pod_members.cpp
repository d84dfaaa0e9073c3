#include "services/indexer/placement/pod_members.hpp"

#include <algorithm>

#include "services/indexer/events/event_topic.hpp"

namespace cenote::indexer {

pod_members::pod_entry* pod_members::find(std::string_view pod, model_number model) noexcept {
  const auto found = pods_.find(std::pair<model_number, std::string>(model, pod));
  return found == pods_.end() ? nullptr : &found->second;
}

bool pod_members::add_publisher(std::string_view pod, model_number model, std::string_view node) {
  pod_entry& entry = pods_[std::pair<model_number, std::string>(model, pod)];
  if (entry.publishers++ == 0 && is_node(pod)) ++nodes_;
  if (!node.empty()) entry.node = node;
  is_linked_ = false;
  return add_rank(pod, model, 0);
}

void pod_members::remove_publisher(std::string_view pod, model_number model) {
  pod_entry* const entry = find(pod, model);
  if (entry == nullptr || --entry->publishers > 0) return;
  if (is_node(pod)) --nodes_;
  for (const rank_entry& rank : entry->ranks) index_.clear(rank.present);
  pods_.erase(std::pair<model_number, std::string>(model, pod));
  is_linked_ = false;
}

std::uint32_t pod_members::publishers(std::string_view pod, model_number model) noexcept {
  const pod_entry* const entry = find(pod, model);
  return entry == nullptr ? 0 : entry->publishers;
}

bool pod_members::add_rank(std::string_view pod, model_number model, std::uint16_t rank) {
  pod_entry* const entry = find(pod, model);
  if (entry == nullptr) return false;
  if (std::ranges::find(entry->ranks, rank, &rank_entry::rank) != entry->ranks.end()) return true;
  if (entry->ranks.size() == most_ranks) return false;
  const auto opened = index_.holders().open({.pod = pod, .model = model, .rank = rank, .kind = presence});
  if (!opened) return false;
  entry->ranks.push_back({rank, *opened, index_.holders().place(*opened).member});
  is_linked_ = false;
  return true;
}

std::uint32_t pod_members::member_of(std::string_view pod, model_number model, std::uint16_t rank) noexcept {
  const pod_entry* const entry = find(pod, model);
  if (entry == nullptr) return holder_table::no_member;
  const auto found = std::ranges::find(entry->ranks, rank, &rank_entry::rank);
  return found == entry->ranks.end() ? holder_table::no_member : found->member;
}

void pod_members::set_slots(std::string_view pod, model_number model, std::uint16_t rank,
                            std::uint32_t slots) noexcept {
  const std::uint32_t member = member_of(pod, model, rank);
  if (member != holder_table::no_member) index_.holders().set_slots(member, slots);
}

void pod_members::set_step(std::string_view pod, model_number model, std::uint16_t rank,
                           std::uint32_t blocks) noexcept {
  const std::uint32_t member = member_of(pod, model, rank);
  if (member != holder_table::no_member) index_.holders().set_step(member, blocks);
}

void pod_members::mark(std::string_view pod, model_number model, std::uint16_t rank, member_mark state) noexcept {
  const std::uint32_t member = member_of(pod, model, rank);
  if (member != holder_table::no_member) index_.holders().mark(member, state);
}

void pod_members::link() {
  if (is_linked_) return;
  std::vector<std::uint32_t> nodes;
  std::vector<node_link> links;
  if (nodes_ > 0) {
    for (const auto& [name, entry] : pods_) {
      if (entry.ranks.empty()) continue;
      if (is_node(name.second)) nodes.push_back(entry.ranks.front().member);
      if (entry.node.empty()) continue;
      const pod_entry* const node = find(pod_of_node(entry.node), name.first);
      if (node == nullptr || node->ranks.empty()) continue;
      for (const rank_entry& rank : entry.ranks) links.push_back({node->ranks.front().member, rank.member});
    }
    std::ranges::sort(nodes);
    std::ranges::sort(links);
  } else if (index_.links().empty()) {
    is_linked_ = true;
    return;
  }
  is_linked_ = index_.links().replace(nodes, links);
}

}  // namespace cenote::indexer
