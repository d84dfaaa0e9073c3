// S3-FIFO (J. Yang, Y. Zhang, Z. Qiu, Y. Yue, R. Vinayak, "FIFO queues are all you need for cache eviction", SOSP
// 2023).
#pragma once

#include "tiers/eviction/ghost_list.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// A small queue of a tenth of the capacity for new blocks, a main queue for those that were used twice in it, and
/// ghosts of what left the small one: who comes back from there goes to the main queue at once. Main is a CLOCK with
/// two bits. While the pool was never full, blocks that the small queue has no room for go to the main queue (as in the
/// authors' later version).
class s3fifo final : public policy {
 public:
  explicit s3fifo(block_links& links) noexcept : small_(links), main_(links) { ghosts_.bound(0); }

  void resize(std::uint32_t capacity) override;
  [[nodiscard]] bool should_admit(std::uint64_t id, std::uint32_t now) override;
  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void insert_with_history(std::uint32_t block, std::uint32_t then, std::uint32_t uses) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void skip_victim(std::uint32_t block, std::uint32_t now) override;
  void evict(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return small_.size() + main_.size(); }
  [[nodiscard]] std::size_t ghosts() const noexcept override { return ghosts_.size(); }

 private:
  struct state {
    std::uint8_t uses : 2 = 0;
    bool in_main : 1 = false;
  };

  void victim_of_small();
  void victim_of_main();

  block_list small_;
  block_list main_;
  ghost_list<> ghosts_;
  per_block<state> states_;
  std::uint32_t capacity_ = 0;
  std::uint32_t small_capacity_ = 0;
  bool has_evicted_ = false;
  std::uint32_t chosen_ = block_list::none;  ///< the victim, so that asking again changes nothing
  std::optional<std::uint64_t> returning_;   ///< the block to be admitted next had a ghost
};

}  // namespace cenote::eviction
