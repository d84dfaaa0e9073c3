#include "tiers/blocks/transfer_table.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include "core/shared_bound.hpp"

namespace cenote::blocks {

using memory::block_record;

bool transfer_table::in_policy(std::uint32_t record) const noexcept {
  if ((state_.records[record].flags & block_record::flag_kept) != 0) return false;
  if (moving_.empty()) return true;
  const auto found = moving_.find(record);
  return found == moving_.end() || !found->second.leaves;
}

bool transfer_table::may_write(edge_number edge, const pool& pool) {
  const std::uint64_t window = state_.options.edges[edge].write_window;
  const auto found = writing_by_[edge].find(pool.owner);
  const std::uint64_t own = found == writing_by_[edge].end() ? 0 : found->second;
  if (own == 0 && writing_[edge] == 0) return true;
  const share_usage usage{.all = writing_[edge], .user = own, .group = 0};
  const std::uint64_t most = has_rivals(edge, *pool.owner) ? user_share(window, usage) : window;
  const bool may = writing_[edge] + pool.stride <= window && (own == 0 || own + pool.stride <= most);
  if (!may) note_wait(edge, *pool.owner);
  return may;
}

/// An instance that was refused and has not asked again while a whole window was written waits no more.
bool transfer_table::has_rivals(edge_number edge, const instance& writer) const {
  const auto writes = [&](const auto& each) { return each.first != &writer; };
  const std::uint64_t window = state_.options.edges[edge].write_window;
  const auto waits = [&](const auto& each) {
    return each.first != writer.number && written_[edge] - each.second < window;
  };
  return std::ranges::any_of(writing_by_[edge], writes) || std::ranges::any_of(waits_[edge], waits);
}

void transfer_table::note_wait(edge_number edge, const instance& writer) {
  std::erase_if(waits_[edge], [&](const auto& each) {
    return written_[edge] - each.second >= state_.options.edges[edge].write_window;
  });
  waits_[edge].insert_or_assign(writer.number, written_[edge]);
}

bool transfer_table::may_load(edge_number edge, const pool& into) const noexcept {
  const std::uint64_t window = state_.options.edges[edge].read_window;
  return loading_[edge] == 0 || loading_[edge] + into.stride <= window;
}

std::uint64_t transfer_table::begin_moving(std::uint32_t record, moving_block what) {
  if (what.serial == 0) what.serial = next_serial_++;
  (what.up ? loading_ : writing_)[what.edge] += what.stride;
  if (what.leaves) leaving_bytes_ += what.stride;
  if (!what.up) {
    ++what.owner->writing;
    writing_by_[what.edge][what.owner] += what.stride;
    waits_[what.edge].erase(what.owner->number);
  }
  moving_record_.emplace(what.serial, record);
  moving_.emplace(record, what);
  return what.serial;
}

std::optional<std::pair<std::uint32_t, moving_block>> transfer_table::take_moving(std::uint64_t token) {
  const auto found = moving_record_.find(token);
  if (found == moving_record_.end()) return std::nullopt;
  const std::pair moved(found->second, moving_.at(found->second));
  const moving_block& what = moved.second;
  (what.up ? loading_ : writing_)[what.edge] -= what.stride;
  if (what.leaves) leaving_bytes_ -= what.stride;
  if (!what.up) end_writing(what);
  moving_.erase(found->second);
  moving_record_.erase(found);
  return moved;
}

void transfer_table::end_writing(const moving_block& moved) {
  --moved.owner->writing;
  written_[moved.edge] += moved.stride;
  const auto own = writing_by_[moved.edge].find(moved.owner);
  own->second -= moved.stride;
  if (own->second == 0) writing_by_[moved.edge].erase(own);
}

void transfer_table::stay(std::uint32_t record) noexcept {
  const auto found = moving_.find(record);
  if (found == moving_.end() || !std::exchange(found->second.leaves, false)) return;
  leaving_bytes_ -= found->second.stride;
}

void transfer_table::abandon_load(instance& instance, const block_key& key) {
  const auto found = instance.loading.find(key);
  if (found == instance.loading.end()) return;
  moving_.at(found->second).unwanted = true;
  instance.loading.erase(found);
}

std::uint64_t transfer_table::writing_bytes() const noexcept {
  return std::accumulate(writing_.begin(), writing_.end(), std::uint64_t{0});
}

std::uint64_t transfer_table::loading_bytes() const noexcept {
  return std::accumulate(loading_.begin(), loading_.end(), std::uint64_t{0});
}

bool transfer_table::is_lost(const slab& home, memory::block_ref ref) const noexcept {
  const std::uint64_t edge = state_.record_of(home, ref).source.load(std::memory_order_relaxed);
  return edge >= max_edges || lost_[edge];
}

bool transfer_table::any_lost() const noexcept {
  return !recovered_.empty() && std::ranges::any_of(lost_, std::identity{});
}

}  // namespace cenote::blocks
