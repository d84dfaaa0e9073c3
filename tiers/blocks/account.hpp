// Who pays for blocks.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "tiers/blocks/types.hpp"

namespace cenote::blocks {

/// What an instance group is charged for its blocks; or one user of those that share the account of a group.
struct account {
  std::string name;
  account* parent = nullptr;                                ///< is charged the same, and has bounds of its own
  std::map<std::uint32_t, std::unique_ptr<account>> users;  ///< by uid: those whose parent it is
  group_options given;
  std::uint64_t used = 0;
  std::uint64_t kept = 0;      ///< … of that, of blocks that stay
  std::uint64_t reserved = 0;  ///< … of that, of blocks that are being written part by part, or set aside
  group_hits past_hits{};      ///< of instances that are gone
  std::uint64_t wrong = 0;     ///< blocks that were dropped since their bytes were not those of their sums

  void pay(std::uint64_t account::*what, std::uint64_t bytes) noexcept {
    for (account* each = this; each != nullptr; each = each->parent) each->*what += bytes;
  }
  void repay(std::uint64_t account::*what, std::uint64_t bytes) noexcept {
    for (account* each = this; each != nullptr; each = each->parent) each->*what -= bytes;
  }
  /// True for itself, and for all of its parents.
  [[nodiscard]] bool pays_into(const account& whom) const noexcept {
    return this == &whom || (parent != nullptr && parent->pays_into(whom));
  }
  [[nodiscard]] bool has_room(std::uint64_t bytes) const noexcept {
    return (given.quota == 0 || used + bytes <= given.quota) && (parent == nullptr || parent->has_room(bytes));
  }
  [[nodiscard]] bool may_keep(std::uint64_t bytes) const noexcept {
    return kept + bytes <= given.keep_quota && (parent == nullptr || parent->may_keep(bytes));
  }
  [[nodiscard]] bool may_reserve(std::uint64_t bytes, std::uint64_t most) const noexcept {
    return reserved + bytes <= most && (parent == nullptr || parent->may_reserve(bytes, most));
  }
};

/// Blank bytes in the hands of sessions of one uid and instance group.
struct blank_share {
  std::uint64_t bytes = 0;
  std::uint32_t sessions = 0;
};

/// All sessions of one uid.
struct user {
  std::uint32_t uid = 0;
  std::uint64_t blank = 0;                      ///< bytes that they hold blank
  std::map<std::string, blank_share> groups{};  ///< … by instance group
  std::uint32_t sessions = 0;
};

}  // namespace cenote::blocks
