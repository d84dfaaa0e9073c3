// The eviction order of each pool: which block is the next victim.
#pragma once

#include <cstdint>
#include <string>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;
class pin_looks;
class transfer_table;

/// Every present block is in one place: its pool's policy, among those that have a copy below and go first, among those
/// that are kept, or on its way down.
class eviction_order {
 public:
  eviction_order(state& state, accounts& payers, transfer_table& transfers, pin_looks& looks) noexcept
      : state_(state), accounts_(payers), transfers_(transfers), pins_(looks), bounded_(state.shares) {}

  void tell_capacity(pool& group, std::size_t coming);
  void enter_order(pool& group, std::uint32_t record, boot_time now);
  /// … even if it is to be kept.
  void enter_policy(pool& group, std::uint32_t record, boot_time now);
  void leave_order(pool& group, std::uint32_t record, departure why, boot_time now);
  void mark_written_back(pool& group, std::uint32_t record, boot_time now);
  void touch_order(pool& group, std::uint32_t record, boot_time now);
  /// Moves every pool's blocks to a new policy, in the order in which the old one would evict them. Blocks the caller
  /// for some tenths of a microsecond a block. Unknown names are refused.
  result<void> set_policy(const std::string& name, boot_time now);
  /// Has set_kind() and block_change_kind() not fail. Throws std::bad_alloc.
  void prepare_kind(std::uint32_t record, block_kind kind) { bounded_.prepare(record, kind); }
  /// Of a block that is in no order yet. Throws std::bad_alloc if it was not prepared.
  void set_kind(std::uint32_t record, block_kind kind) { bounded_.set_kind(record, kind); }
  [[nodiscard]] block_kind kind_of(std::uint32_t record) const noexcept { return bounded_.kind_of(record); }
  /// Of a block that may be in its pool's order.
  void block_change_kind(pool& group, std::uint32_t record, block_kind kind, boot_time now);
  /// The victim cannot go now: the next one shall be another, if there is one.
  void skip_victim(pool& group, std::uint32_t record, boot_time now);
  /// The policies of a new pool.
  void equip(pool& group);
  /// There are records up to `end` now.
  void cover(std::uint32_t end) { links_.cover(end); }
  [[nodiscard]] std::uint64_t written_back_bytes() const noexcept { return written_back_bytes_; }

 private:
  [[nodiscard]] bool is_in_policy(std::uint32_t record) const noexcept;

  state& state_;
  accounts& accounts_;
  transfer_table& transfers_;
  pin_looks& pins_;
  eviction::block_links links_;
  bounded_blocks bounded_;
  std::uint64_t written_back_bytes_ = 0;
};

}  // namespace cenote::blocks
