#include "tiers/blocks/window_shares.hpp"

#include <array>
#include <optional>

namespace cenote::blocks {

namespace {

template <class Map>
std::uint64_t bytes_of(const Map& map, const typename Map::key_type& key) {
  const auto found = map.find(key);
  return found == map.end() ? 0 : found->second;
}

template <class Map>
void lessen(Map& map, const typename Map::key_type& key, std::uint64_t bytes) {
  const auto found = map.find(key);
  found->second -= bytes;
  if (found->second == 0) map.erase(found);
}

share_holder holder_of(const instance& writer) {
  return {.uid = writer.owner, .group = writer.spec.instance_group};
}

}  // namespace

bool window_shares::may_take(const instance& writer, std::uint64_t bytes, std::uint64_t window) {
  if (all_ == 0) return true;
  const bool may = all_ + bytes <= window && fits(writer, bytes, window);
  if (!may) note_wait(writer, window);
  return may;
}

/// The payer is the one when the first of the writer's blocks began.
bool window_shares::fits(const instance& writer, std::uint64_t bytes, std::uint64_t window) const {
  const auto found = instances_.find(writer.number);
  std::optional<share_holder> fresh;
  const share_holder& payer = found == instances_.end() ? fresh.emplace(holder_of(writer)) : found->second.payer;
  const std::uint64_t own = found == instances_.end() ? 0 : found->second.bytes;
  const rivals others = rivals_of(writer.number, payer, window);
  const std::array taken{all_, bytes_of(users_, payer.uid), bytes_of(groups_, payer), own};
  const std::array waits{false, others.user, others.group, others.instance};
  std::uint64_t most = window;
  for (std::size_t level = 1; level < taken.size(); ++level) {
    if (taken.at(level) == 0) return true;
    const share_usage usage{.all = taken.at(level - 1), .user = taken.at(level), .group = 0};
    if (usage.user < usage.all || waits.at(level)) most = user_share(most, usage);
    if (usage.user + bytes > most) return false;
  }
  return true;
}

window_shares::rivals window_shares::rivals_of(instance_number writer, const share_holder& payer,
                                               std::uint64_t window) const {
  rivals found;
  for (const auto& [number, each] : waits_) {
    if (number == writer || transferred_ - each.start >= window) continue;
    if (each.payer.uid != payer.uid) {
      found.user = true;
    } else {
      (each.payer == payer ? found.instance : found.group) = true;
    }
  }
  return found;
}

void window_shares::note_wait(const instance& writer, std::uint64_t window) {
  std::erase_if(waits_, [&](const auto& each) { return transferred_ - each.second.start >= window; });
  waits_.insert_or_assign(writer.number, wait{.payer = holder_of(writer), .start = transferred_});
}

void window_shares::take(const instance& writer, std::uint64_t bytes) {
  if (bytes == 0) return;
  auto found = instances_.find(writer.number);
  if (found == instances_.end())
    found = instances_.emplace(writer.number, window_part{.payer = holder_of(writer)}).first;
  window_part& own = found->second;
  own.bytes += bytes;
  users_[own.payer.uid] += bytes;
  groups_[own.payer] += bytes;
  all_ += bytes;
  waits_.erase(writer.number);
}

void window_shares::give_back(instance_number writer, std::uint64_t bytes) {
  if (bytes == 0) return;
  const auto own = instances_.find(writer);
  lessen(users_, own->second.payer.uid, bytes);
  lessen(groups_, own->second.payer, bytes);
  own->second.bytes -= bytes;
  if (own->second.bytes == 0) instances_.erase(own);
  all_ -= bytes;
  transferred_ += bytes;
}

}  // namespace cenote::blocks
