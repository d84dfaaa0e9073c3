// ARC (N. Megiddo, D. S. Modha, "ARC: A Self-Tuning, Low Overhead Replacement Cache", FAST 2003).
#pragma once

#include "tiers/eviction/ghost_list.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// Two LRU lists, of blocks used once (T1) and more often (T2), with ghosts of each (B1, B2). A block that comes back
/// from B1 shows that T1 should have been larger, one from B2 that T2 should have been: the target size of T1 follows.
/// As in the paper |T1| + |B1| is at most the capacity, and all four together are at most twice that.
class arc final : public policy {
 public:
  explicit arc(block_links& links) noexcept : once_(links), often_(links) {}

  void resize(std::uint32_t capacity) override;
  [[nodiscard]] bool should_admit(std::uint64_t id, std::uint32_t now) override;
  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void insert_with_history(std::uint32_t block, std::uint32_t then, std::uint32_t uses) override;
  /// Imports what another instance has learned from a sample of the same requests. Without its ghosts: they would admit
  /// some blocks of a chain and not the others. To be called while empty.
  void import_history(const arc& predecessor);
  void touch(std::uint32_t block, std::uint32_t now) override;
  void refresh(std::uint32_t block, std::uint32_t now) override;
  void skip_victim(std::uint32_t block, std::uint32_t now) override;
  void evict(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return once_.size() + often_.size(); }
  [[nodiscard]] std::size_t ghosts() const noexcept override { return once_ghosts_.size() + often_ghosts_.size(); }

 private:
  enum class ghost_kind : std::uint8_t { none, once, often };

  [[nodiscard]] ghost_kind take_ghost(std::uint64_t id);
  void keep_bounds();

  block_list once_;
  block_list often_;
  ghost_list<> once_ghosts_;
  ghost_list<> often_ghosts_;
  per_block<std::uint8_t> is_often_;
  std::uint32_t capacity_ = 0;
  double target_ = 0;                        ///< how many blocks T1 should have
  std::optional<std::uint64_t> expected_;    ///< the block to be admitted next
  ghost_kind returning_ = ghost_kind::none;  ///< where its ghost was
};

}  // namespace cenote::eviction
