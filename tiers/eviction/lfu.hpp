// Least frequently used.
#pragma once

#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// A list for each number of uses that occurs, in ascending order (K. Shah, A. Mitra, D. Matani, "An O(1) algorithm for
/// implementing the LFU cache eviction scheme", 2010). The victim is the block that is longest in the first list.
class lfu final : public policy {
 public:
  explicit lfu(block_links& links) noexcept : links_(&links) {}

  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void refresh(std::uint32_t block, std::uint32_t now) override;
  void skip_victim(std::uint32_t block, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return size_; }

 private:
  /// The blocks that were used equally often, the latest to come first.
  struct bucket {
    block_list blocks;
    std::uint64_t uses = 0;
    std::uint32_t lower = none;
    std::uint32_t higher = none;
  };
  static constexpr std::uint32_t none = block_list::none;

  [[nodiscard]] std::uint32_t bucket_after(std::uint32_t lower, std::uint64_t uses);
  void leave(std::uint32_t block);

  block_links* links_;
  std::vector<bucket> buckets_;
  std::vector<std::uint32_t> free_;  ///< buckets that are empty
  std::uint32_t first_ = none;       ///< the bucket with the fewest uses
  std::uint32_t size_ = 0;
  per_block<std::uint32_t> home_;  ///< the bucket of a block
};

}  // namespace cenote::eviction
