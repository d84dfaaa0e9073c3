// The policy `auto`: the one of several that does best on the tier's own requests (docs/policies.md).
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "tiers/eviction/contest.hpp"
#include "tiers/eviction/miniatures.hpp"
#include "tiers/eviction/policy.hpp"

namespace cenote::eviction {

/// What `auto` asks for before it moves on: a lead over the policy at work that exceeds a cost and what chance does.
/// The cost is in shares of the pool's blocks, chance in usual differences of two policies on one request.
struct auto_options {
  std::string_view start = "tblru";          ///< at work until another one is better
  std::uint32_t miniature = 512;             ///< blocks that a miniature holds, at most
  std::uint32_t miniature_of_small = 1'024;  ///< of a pool of up to four times as many
  std::uint32_t window = 2'048;              ///< requests until a difference counts half for what is usual
  double cost = 0.6;                         ///< of what the new policy has yet to learn, and of coming back
  double cost_of_lru = 0.3;                  ///< which has nothing to learn
  double chance = 45;
  double chance_of_lru = 45;
  double chance_of_partial = 20;  ///< to let partial blocks in or keep them out, which moves nothing
};

/// What `auto` does, for metrics.
struct auto_status {
  struct score {
    std::string_view policy;
    double blocks = 0;  ///< that it would have saved of the sampled ones, since the pool first had to evict
    double lead = 0;    ///< over the policy at work, as a share of what it takes to take over
  };
  std::string_view policy;     ///< at work
  std::uint64_t switches = 0;  ///< so far
  std::uint32_t thinning = 1;  ///< one block in so many is sampled
  std::uint64_t requests = 0;  ///< so far
  std::uint64_t sampled = 0;   ///< of these, the ones with sampled blocks
  std::uint32_t leaving = 0;   ///< blocks that the policy before still orders
  std::array<score, miniatures::candidates.size()> scores{};
};

/// Runs a miniature of each candidate on a sample of the blocks (C. Waldspurger, N. Park, A. Garthwaite, I. Ahmad,
/// "Efficient MRC construction with SHARDS", FAST 2015, and "Cache modeling and optimization using miniature
/// simulations", ATC 2017), and hands the pool to one that saves more prefill, if its lead is neither chance nor less
/// than what a switch costs. What is sampled of a chain is a chain, and every request is seen, through fewer blocks.
///
/// Residents are kept: they move into the new policy in the order in which the old one would evict them, the next
/// victim first, some thousands with each request, with the number of their uses; until then they are the first
/// victims. The new policy begins with what its miniature knows. 16 bytes a block, and about 1 MB for the miniatures,
/// not counting what TBLRU's remember of sessions. Until it first has to evict, the pool takes partial blocks, too, and
/// nothing is decided. Without begin() it stays what it started as.
class automatic final : public policy {
 public:
  explicit automatic(block_links& links, const auto_options& options = {});

  void resize(std::uint32_t capacity) override;
  std::uint32_t begin(const request& of, std::uint32_t now) override;
  void resume(std::uint32_t standing, std::optional<std::uint32_t> parent) override;
  [[nodiscard]] bool follows_requests() const noexcept override { return true; }
  [[nodiscard]] touch_order order() const noexcept override;
  [[nodiscard]] bool wants(std::uint64_t id, std::uint32_t now) override;
  void admit(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void touch(std::uint32_t block, std::uint32_t now) override;
  void refresh(std::uint32_t block, std::uint32_t now) override;
  void spare(std::uint32_t block, std::uint32_t now) override;
  void evict(std::uint32_t block, std::uint64_t id, std::uint32_t now) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override;
  [[nodiscard]] std::size_t ghosts() const noexcept override;

  [[nodiscard]] auto_status status() const noexcept;

 private:
  struct state {
    std::uint64_t id = 0;
    std::uint32_t touched = 0;
    std::uint8_t uses = 0;        ///< since it came, at most 255
    std::uint8_t owner = nobody;  ///< the side, of two, that orders it
  };
  static constexpr std::uint8_t nobody = 2;

  [[nodiscard]] bool is_leaving(std::uint32_t block) const noexcept { return blocks_[block].owner != side_; }
  [[nodiscard]] std::size_t leading(const request& of) const noexcept;
  void fit_miniatures();
  void watch(const request& of, std::uint32_t now);
  void take_sample(const request& of);
  void decide();
  [[nodiscard]] contest::bar bar_of(std::size_t candidate) const noexcept;
  void switch_to(std::size_t candidate);
  void bring(std::uint32_t block, std::uint32_t now);
  void bring_some(std::uint32_t now);

  block_links* links_;
  auto_options options_;
  std::unique_ptr<policy> live_;
  std::unique_ptr<policy> leaving_;  ///< the one before, while it still has blocks
  std::uint8_t side_ = 0;            ///< of live_
  per_block<state> blocks_;
  std::uint32_t capacity_ = 0;
  bool full_ = false;                     ///< a victim was asked for
  std::uint32_t brought_until_ = 0;       ///< the last use of the block that was brought over last
  std::optional<std::uint64_t> refused_;  ///< the partial block of the present request
  // The race.
  miniatures miniatures_;
  contest contest_;
  std::vector<std::uint64_t> sample_;  ///< of the present request
  std::uint32_t thinning_ = 1;
  std::uint64_t requests_ = 0;
  std::uint64_t sampled_ = 0;
  std::uint64_t switches_ = 0;
};

}  // namespace cenote::eviction
