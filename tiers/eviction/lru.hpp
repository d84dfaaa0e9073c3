// Least recently used.
#pragma once

#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// One list, most recent first. The victim is the block that was not used for longest.
class lru final : public policy {
 public:
  explicit lru(block_links& links) noexcept : list_(links) {}

  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void insert_with_history(std::uint32_t block, std::uint32_t then, std::uint32_t uses) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void refresh(std::uint32_t block, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return list_.size(); }

 private:
  block_list list_;
};

}  // namespace cenote::eviction
