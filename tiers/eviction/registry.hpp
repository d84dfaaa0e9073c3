// Every eviction policy, declared once: names, what is said of them, and who may use them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// Where a policy may be chosen.
enum class policy_use : std::uint8_t {
  tiers,     ///< in every tier
  requests,  ///< in tiers that see whole requests: it follows them
  replays,   ///< in simulations alone
};

/// Whether `auto` chooses among it.
enum class candidacy : std::uint8_t {
  none,
  order,  ///< it is nothing but lists by last use, so that any order of blocks is as good as its own
  state,  ///< it has its own state to build up
};

/// A row of the registry. Texts are those of docs/policies.md.
struct policy_info {
  std::string_view name;
  std::string_view summary;      ///< a line
  std::string_view source = {};  ///< who described it; empty: nobody need
  std::string_view memory = {};  ///< what it remembers of a block, beside the links; empty: nothing
  policy_use use = policy_use::tiers;
  candidacy candidate = candidacy::none;
  std::unique_ptr<policy> (*make)(block_links& links) = nullptr;
  /// Has `successor` take over what `predecessor` has learned; both are of this row.
  void (*import_history)(policy& successor, const policy& predecessor) = nullptr;
};

/// All of them.
[[nodiscard]] std::span<const policy_info> policies() noexcept;

/// Nothing when there is none of that name.
[[nodiscard]] const policy_info* find_policy(std::string_view name) noexcept;

/// The candidates of `auto`.
[[nodiscard]] std::span<const policy_info* const> candidates() noexcept;

/// What a tier that sees whole requests may be told to use, and one that sees single blocks: "fifo|lru|…".
[[nodiscard]] std::string_view choices_of_requests() noexcept;
[[nodiscard]] std::string_view choices_of_blocks() noexcept;

}  // namespace cenote::eviction
