// First in, first out.
#pragma once

#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// One list, in the order of admission; a use changes nothing. The baseline for the others.
class fifo final : public policy {
 public:
  explicit fifo(block_links& links) noexcept : list_(links) {}

  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void touch(std::uint32_t /*block*/, std::uint32_t /*now*/) override {}
  void skip_victim(std::uint32_t block, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return list_.size(); }

 private:
  block_list list_;
};

}  // namespace cenote::eviction
