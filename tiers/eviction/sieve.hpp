// SIEVE (Y. Zhang, J. Yang et al., "SIEVE is Simpler than LRU: an Efficient Turn-Key Eviction Algorithm for Web
// Caches", NSDI 2024).
#pragma once

#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// One list in the order of admission, one bit a block, and a hand that walks from the oldest block to the newest,
/// clears set bits and stops at the first block without: the victim. Blocks never move.
class sieve final : public policy {
 public:
  explicit sieve(block_links& links) noexcept : list_(links) {}

  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return list_.size(); }

 private:
  block_list list_;
  std::uint32_t hand_ = block_list::none;  ///< none: at the oldest block
  per_block<std::uint8_t> used_;
};

}  // namespace cenote::eviction
