// MQ (Y. Zhou, J. Philbin, K. Li, "The Multi-Queue Replacement Algorithm for Second Level Buffer Caches", USENIX ATC
// 2001).
#pragma once

#include <array>

#include "tiers/eviction/ghost_list.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// Eight LRU queues: a block used f times is in queue log2(f). A block at the end of a queue that was not used for a
/// lifetime goes down one queue; the victim is the end of the lowest queue. Ghosts (four times the capacity) keep the
/// number of uses. The clock counts uses and admissions. Partial tail blocks are not admitted,
/// unless they shall be.
class mq final : public policy {
 public:
  explicit mq(block_links& links, partial_blocks partial = partial_blocks::refused) noexcept;

  void resize(std::uint32_t capacity) override;
  std::uint32_t begin_request(const request& request, std::uint32_t now) override;
  [[nodiscard]] bool should_admit(std::uint64_t id, std::uint32_t now) override;
  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void insert_with_history(std::uint32_t block, std::uint32_t then, std::uint32_t uses) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void skip_victim(std::uint32_t block, std::uint32_t now) override;
  void evict(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override { return size_; }
  [[nodiscard]] std::size_t ghosts() const noexcept override { return ghosts_.size(); }
  /// A lifetime is that much shorter.
  void thin(std::uint32_t thinning) override;

 private:
  static constexpr std::size_t queue_count = 8;

  struct state {
    std::uint64_t expires = 0;
    std::uint32_t uses = 0;
    std::uint32_t queue = 0;
  };
  /// The oldest block of a queue, as far as it was looked at: every use asks for it.
  struct end {
    std::uint32_t block = block_list::none;
    std::uint64_t expires = 0;
  };

  [[nodiscard]] static std::size_t queue_of(std::uint32_t uses) noexcept;
  void place(std::uint32_t block, std::size_t queue);
  void tick();

  partial_blocks admits_partial_;
  std::uint64_t lifetime_;  ///< uses and admissions
  std::array<block_list, queue_count> queues_;
  std::array<end, queue_count> ends_;
  ghost_list<std::uint32_t> ghosts_;  ///< noted: the number of uses
  per_block<state> states_;
  std::uint32_t capacity_ = 0;
  std::uint32_t size_ = 0;
  std::uint64_t clock_ = 0;
  std::optional<std::uint64_t> partial_;    ///< the request's block that is not to come in
  std::optional<std::uint64_t> returning_;  ///< the block to be admitted next had a ghost
  std::uint32_t returning_uses_ = 0;
};

}  // namespace cenote::eviction
