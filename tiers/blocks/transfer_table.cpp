#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

using memory::block_record;

bool transfer_table::in_policy(std::uint32_t record) const noexcept {
  if ((state_.records[record].flags & block_record::flag_kept) != 0) return false;
  if (moving_.empty()) return true;
  const auto found = moving_.find(record);
  return found == moving_.end() || !found->second.leaves;
}

bool transfer_table::may_write(const pool& from) const noexcept {
  return writing_bytes_ == 0 || writing_bytes_ + from.stride <= state_.options.lower.write_window;
}

bool transfer_table::may_load(const pool& into) const noexcept {
  return loading_bytes_ == 0 || loading_bytes_ + into.stride <= state_.options.lower.read_window;
}

std::uint64_t transfer_table::begin_moving(std::uint32_t record, moving_block what) {
  what.serial = next_serial_++;
  (what.up ? loading_bytes_ : writing_bytes_) += what.stride;
  if (what.leaves) leaving_bytes_ += what.stride;
  moving_record_.emplace(what.serial, record);
  moving_.emplace(record, what);
  return what.serial;
}

std::optional<std::pair<std::uint32_t, moving_block>> transfer_table::take_moving(std::uint64_t token) {
  const auto found = moving_record_.find(token);
  if (found == moving_record_.end()) return std::nullopt;
  const std::pair moved(found->second, moving_.at(found->second));
  const moving_block& what = moved.second;
  (what.up ? loading_bytes_ : writing_bytes_) -= what.stride;
  if (what.leaves) leaving_bytes_ -= what.stride;
  moving_.erase(found->second);
  moving_record_.erase(found);
  return moved;
}

void transfer_table::stay(std::uint32_t record) noexcept {
  const auto found = moving_.find(record);
  if (found == moving_.end() || !std::exchange(found->second.leaves, false)) return;
  leaving_bytes_ -= found->second.stride;
}

void transfer_table::abandon_load(instance& in, const block_key& key) {
  const auto found = in.loading.find(key);
  if (found == in.loading.end()) return;
  moving_.at(found->second).unwanted = true;
  in.loading.erase(found);
}

}  // namespace cenote::blocks
