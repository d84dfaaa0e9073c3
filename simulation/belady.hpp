// The offline bound (L. A. Belady, "A study of replacement algorithms for a virtual-storage computer", 1966).
#pragma once

#include "tiers/eviction/policy.hpp"

namespace cenote::simulation {

/// A set of positions below a bound that knows its largest one. Every operation takes as many steps as the bound has
/// digits to the base 64.
class position_set {
 public:
  explicit position_set(std::uint32_t bound);
  void insert(std::uint32_t position) noexcept;
  void erase(std::uint32_t position) noexcept;
  [[nodiscard]] std::optional<std::uint32_t> largest() const noexcept;

 private:
  std::vector<std::vector<std::uint64_t>> levels_;  ///< a bit for each word of the level before that is not zero
};

/// Evicts the block whose next use is farthest away, and does not admit one whose own is farther still, or never
/// comes. It knows the future, so it runs in simulations only: every use or refused admission is the next position of
/// the stream.
class belady final : public eviction::policy {
 public:
  static constexpr std::uint32_t never = ~std::uint32_t{0};

  /// `next_use`: for each position of the stream, the position at which the same block comes next, or never. Must
  /// outlive the policy.
  belady(std::span<const std::uint32_t> next_use, std::uint32_t capacity);

  void resize(std::uint32_t capacity) override { capacity_ = capacity; }
  [[nodiscard]] bool should_admit(std::uint64_t id, std::uint32_t now) override;
  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return size_; }

 private:
  void place(std::uint32_t block, std::uint32_t next);
  void displace(std::uint32_t block);

  std::span<const std::uint32_t> next_use_;
  std::uint32_t capacity_;
  std::uint32_t position_ = 0;
  std::uint32_t size_ = 0;
  position_set future_uses_;
  std::vector<std::uint32_t> block_at_;           ///< the block that is used at a position
  std::vector<std::uint32_t> unused_;             ///< blocks that are never used again; the first to go
  eviction::per_block<std::uint32_t> next_;       ///< of a block: its position, or never
  eviction::per_block<std::uint32_t> unused_at_;  ///< of a block that is never used again: its place in unused_
};

}  // namespace cenote::simulation
