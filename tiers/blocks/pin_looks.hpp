// Pins of readers: which blocks cannot go now.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class prefetch_holds;
class transfer_table;

/// Makes blocks unreadable before they are reused (condemn) and scans readers' pins, as hazard pointers are scanned.
class pin_looks {
 public:
  pin_looks(state& state, prefetch_holds& held, transfer_table& transfers) noexcept
      : state_(state), holds_(held), transfers_(transfers) {}

  std::vector<bool> condemn(instance& instance, std::span<const memory::block_ref> refs);
  /// A hint, without changing versions: only what condemn() says is sure.
  [[nodiscard]] bool any_pinned(const instance& instance, std::span<const memory::block_ref> refs);
  void mark_pins(instance& instance, boot_time now);
  void note_loose(pool& group, std::uint32_t record);
  bool look_again(instance& instance, boot_time now);
  [[nodiscard]] bool is_stuck(const slab& home, memory::block_ref ref, boot_time now) const noexcept;
  /// Adds the cost of examining a whole pool as a last resort to what look_again() bounds.
  void note_forced(std::uint64_t cost) noexcept { forced_cost_ += cost; }

 private:
  [[nodiscard]] std::uint64_t scan_cost(const instance& instance) const noexcept;

  state& state_;
  prefetch_holds& holds_;
  transfer_table& transfers_;
  boot_time forced_at_{};
  unsigned forced_looks_ = 0;
  std::uint64_t forced_cost_ = 0;
};

}  // namespace cenote::blocks
