// The blocks that are here, for readers of changes, each at the number of its record.
#pragma once

#include "tiers/block_changes/block_changes.hpp"
#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

/// Looks at the records alone. Not thread-safe.
class present_list final : public block_listing {
 public:
  explicit present_list(const state& state) noexcept : state_(state) {}

  block_place list(block_place first, std::size_t steps, std::vector<tier_change>& blocks) const override;
  [[nodiscard]] std::optional<change_subject> subject_of(std::uint32_t instance) const override;

 private:
  const state& state_;
};

}  // namespace cenote::blocks
