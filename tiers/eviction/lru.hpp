// Least recently used.
#pragma once

#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// One list, most recent first.
class lru final : public policy {
 public:
  explicit lru(block_links& links) noexcept : links_(links) {}

  void admit(std::uint32_t block, std::uint32_t now) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() const override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return size_; }

 private:
  void unlink(std::uint32_t block) noexcept;
  void push_front(std::uint32_t block) noexcept;

  block_links& links_;
  std::uint32_t head_ = block_links::none;
  std::uint32_t tail_ = block_links::none;
  std::uint32_t size_ = 0;
};

}  // namespace cenote::eviction
