// 2Q (T. Johnson, D. Shasha, "2Q: A Low Overhead High Performance Buffer Management Replacement Algorithm", VLDB 1994).
#pragma once

#include "tiers/eviction/ghost_list.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// New blocks pass through a FIFO of a quarter of the capacity (A1in) and leave ghosts (A1out, half the capacity); who
/// comes back while its ghost is there joins an LRU list (Am). A use in A1in changes nothing.
class two_queue final : public policy {
 public:
  explicit two_queue(block_links& links) noexcept : arrivals_(links), main_(links) { ghosts_.bound(0); }

  void resize(std::uint32_t capacity) override;
  [[nodiscard]] bool should_admit(std::uint64_t id, std::uint32_t now) override;
  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void insert_with_history(std::uint32_t block, std::uint32_t then, std::uint32_t uses) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void refresh(std::uint32_t block, std::uint32_t now) override;
  void skip_victim(std::uint32_t block, std::uint32_t now) override;
  void evict(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return arrivals_.size() + main_.size(); }
  [[nodiscard]] std::size_t ghosts() const noexcept override { return ghosts_.size(); }

 private:
  block_list arrivals_;  ///< A1in
  block_list main_;      ///< Am
  ghost_list<> ghosts_;  ///< A1out
  per_block<std::uint8_t> in_main_;
  std::uint32_t capacity_ = 0;
  std::uint32_t arrivals_capacity_ = 0;
  std::optional<std::uint64_t> returning_;  ///< the block to be admitted next had a ghost
};

}  // namespace cenote::eviction
