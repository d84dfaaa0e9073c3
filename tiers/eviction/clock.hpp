// CLOCK, also called second chance (F. J. Corbató, "A Paging Experiment with the Multics System", 1968).
#pragma once

#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// One list in the order of admission, one bit a block. A use sets the bit; the oldest block with its bit set goes to
/// the front without it instead of being evicted.
class clock final : public policy {
 public:
  explicit clock(block_links& links) noexcept : list_(links) {}

  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return list_.size(); }

 private:
  block_list list_;
  per_block<std::uint8_t> used_;
};

}  // namespace cenote::eviction
