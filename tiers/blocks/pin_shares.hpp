// The part of the tier that readers of one user's instances keep where it is.
#pragma once

#include <cstdint>
#include <map>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;

/// Pins are words in shared memory and cost no message, so they are looked at when an instance asks for a block: while
/// others are attached, instances of a user with limits.pin_share of the capacity pinned get no further ones.
class pin_shares {
 public:
  pin_shares(state& state, const accounts& payers) noexcept : state_(state), accounts_(payers) {}

  /// True: the pool's instance gets no block now.
  [[nodiscard]] bool is_used_up(const pool& group, boot_time now);

 private:
  struct look {
    boot_time time{};
    std::uint64_t pinned = 0;     ///< bytes
    std::uint64_t allocated = 0;  ///< bytes that were asked for since
  };
  [[nodiscard]] bool has_others(std::uint32_t owner) const noexcept;
  [[nodiscard]] std::uint64_t pinned_by_readers_of(std::uint32_t owner) const;

  state& state_;
  const accounts& accounts_;
  std::map<std::uint32_t, look> looks_;  ///< by the uid that made the instances
};

}  // namespace cenote::blocks
