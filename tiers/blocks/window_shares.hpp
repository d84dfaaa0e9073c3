// Shares of a window of transfers.
#pragma once

#include <cstdint>
#include <map>
#include <unordered_map>

#include "core/shared_bound.hpp"
#include "tiers/blocks/structures.hpp"

namespace cenote::blocks {

/// Bytes under way through one window, of each instance. Users share the window, the instance groups of a user the part
/// of the user, the instances of a group the part of the group (core/shared_bound.hpp). At each level, one that is
/// alone, without another that has a part or waits for one, has all. Not thread-safe.
class window_shares {
 public:
  /// Whether `writer` may take `bytes` more. One block may always be under way, however small the window is; a
  /// user, group or instance without any takes one where there is room. A refused instance waits, and has a share,
  /// until it takes something, or has not asked again while a whole window went through.
  [[nodiscard]] bool may_take(const instance& writer, std::uint64_t bytes, std::uint64_t window);
  void take(const instance& writer, std::uint64_t bytes);
  void give_back(instance_number writer, std::uint64_t bytes);
  [[nodiscard]] std::uint64_t bytes() const noexcept { return all_; }

 private:
  struct window_part {
    share_holder payer{};
    std::uint64_t bytes = 0;
  };
  struct wait {
    share_holder payer{};
    std::uint64_t start = 0;  ///< `transferred_` when it was refused
  };
  /// Whether another one waits, at each level.
  struct rivals {
    bool user = false;
    bool group = false;
    bool instance = false;
  };

  [[nodiscard]] bool fits(const instance& writer, std::uint64_t bytes, std::uint64_t window) const;
  [[nodiscard]] rivals rivals_of(instance_number writer, const share_holder& payer, std::uint64_t window) const;
  void note_wait(const instance& writer, std::uint64_t window);

  std::uint64_t all_ = 0;
  std::uint64_t transferred_ = 0;                           ///< bytes that went through, since the start
  std::unordered_map<std::uint32_t, std::uint64_t> users_;  ///< bytes; none is 0
  std::map<share_holder, std::uint64_t> groups_;
  std::unordered_map<instance_number, window_part> instances_;
  std::unordered_map<instance_number, wait> waits_;
};

}  // namespace cenote::blocks
