#include "tiers/blocks/transfer_table.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

namespace cenote::blocks {

using memory::block_record;

bool transfer_table::in_policy(std::uint32_t record) const noexcept {
  if ((state_.records[record].flags & block_record::flag_kept) != 0) return false;
  if (moving_.empty()) return true;
  const auto found = moving_.find(record);
  return found == moving_.end() || !found->second.leaves;
}

bool transfer_table::may_write(edge_number edge, const pool& pool) {
  return writing_[edge].may_take(*pool.owner, pool.stride, state_.options.edges[edge].write_window);
}

bool transfer_table::may_load(edge_number edge, const pool& into) const noexcept {
  const std::uint64_t window = state_.options.edges[edge].read_window;
  return loading_[edge] == 0 || loading_[edge] + into.stride <= window;
}

std::uint64_t transfer_table::begin_moving(std::uint32_t record, moving_block what) {
  if (what.serial == 0) what.serial = next_serial_++;
  if (what.leaves) leaving_bytes_ += what.stride;
  if (what.up) {
    loading_[what.edge] += what.stride;
  } else {
    ++what.owner->writing;
    writing_[what.edge].take(*what.owner, what.stride);
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
  if (what.leaves) leaving_bytes_ -= what.stride;
  if (what.up) {
    loading_[what.edge] -= what.stride;
  } else {
    --what.owner->writing;
    writing_[what.edge].give_back(what.owner->number, what.stride);
  }
  moving_.erase(found->second);
  moving_record_.erase(found);
  return moved;
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
  const auto add = [](std::uint64_t sum, const window_shares& each) { return sum + each.bytes(); };
  return std::accumulate(writing_.begin(), writing_.end(), std::uint64_t{0}, add);
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
