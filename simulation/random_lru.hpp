// Least recently used among a few blocks that are drawn at random, as Redis and Tair's manager evict.
#pragma once

#include <cstdint>
#include <vector>

#include "tiers/eviction/policy.hpp"

namespace cenote::simulation {

/// Draws ten blocks, some of them perhaps twice, and evicts the one whose last use is the oldest (Tair's sample rate of
/// 0.1: ten for each that goes). It is for comparison with other systems, so it runs in simulations only. The draws are
/// the same in each run.
class random_lru final : public eviction::policy {
 public:
  static constexpr unsigned drawn = 10;

  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void refresh(std::uint32_t block, std::uint32_t now) override { touch(block, now); }
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return static_cast<std::uint32_t>(blocks_.size()); }

 private:
  std::vector<std::uint32_t> blocks_;             ///< that are here, in no order
  eviction::per_block<std::uint32_t> places_;     ///< in blocks_
  eviction::per_block<std::uint64_t> last_uses_;  ///< by a count of uses
  std::optional<std::uint32_t> victim_;           ///< drawn, until something changes
  std::uint64_t uses_ = 0;
  std::uint64_t draws_ = 0;
};

}  // namespace cenote::simulation
