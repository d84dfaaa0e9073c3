// The policy `auto`: the one of several that does best on the tier's own requests (docs/policies.md).
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "tiers/eviction/policy.hpp"
#include "tiers/eviction/policy_selector.hpp"
#include "tiers/eviction/request_clock.hpp"
#include "tiers/eviction/shadow_caches.hpp"
#include "tiers/eviction/use_times.hpp"

namespace cenote::eviction {

/// When `auto` moves on. A lead is in units of what chance does (policy_selector.hpp).
struct auto_options {
  std::string_view start = "lru";      ///< at work until another one is better
  std::uint32_t shadow_blocks = 256;   ///< blocks that a shadow cache holds, at most
  std::uint32_t thinning = 4;          ///< at least: one block in so many is sampled
  std::uint32_t half_life = 1'000;     ///< sampled requests until one counts half
  double lead = 3;                     ///< for a policy that has its own state to build up
  double lead_of_lists = 1.2;          ///< for LRU, MQ and TBLRU, which go on from any order at once
  double lead_of_sessions = 0.5;       ///< for a policy that sees sessions go on, over what it started with
  double recent_lead_of_lists = 1.75;  ///< for those lists, over the latest requests
  double recent_lead_of_start = 1.25;  ///< … for what it started with
};

/// Runs a shadow cache of each candidate on a sample of the blocks (C. Waldspurger, N. Park, A. Garthwaite, I. Ahmad,
/// "Efficient MRC construction with SHARDS", FAST 2015, and "Cache modeling and optimization using miniature
/// simulations", ATC 2017), and hands the pool to one that saves more prefill, if its lead is more than chance. What is
/// sampled of a chain is a chain, and a request is seen through fewer blocks, if any.
///
/// Residents are kept: they move into the new policy in the order of their last use, the youngest first and each older
/// than what is there, some with each request, with the number of their uses; what a request finds moves with it, and
/// the oldest that still wait are the first victims. So the new policy begins with an order by last use, in which no
/// tail outlives its head. 6 bytes a block, 16 more while they move, and about 0.3 MB for the shadow caches, not
/// counting what TBLRU's remember of sessions. Nothing is decided until the pool first has to evict: with nothing to
/// learn from it keeps what LRU keeps, of full blocks until then. Where time stands still, requests are counted
/// instead. Without begin_request() it stays what it started as.
class automatic final : public policy {
 public:
  explicit automatic(block_links& links, const auto_options& options = {});

  void resize(std::uint32_t capacity) override;
  std::uint32_t begin_request(const request& request, std::uint32_t time) override;
  void resume_request(std::uint32_t request_context, std::optional<std::uint32_t> parent) override;
  [[nodiscard]] bool follows_requests() const noexcept override { return true; }
  [[nodiscard]] touch_order order() const noexcept override;
  [[nodiscard]] bool should_admit(std::uint64_t id, std::uint32_t now) override;
  void insert(std::uint32_t block, std::uint64_t id, std::uint32_t time) override;
  void touch(std::uint32_t block, std::uint32_t time) override;
  void refresh(std::uint32_t block, std::uint32_t time) override;
  void skip_victim(std::uint32_t block, std::uint32_t time) override;
  void evict(std::uint32_t block, std::uint64_t id, std::uint32_t time) override;
  void forget(std::uint32_t block) override;
  [[nodiscard]] std::optional<std::uint32_t> victim() override;
  [[nodiscard]] std::uint32_t size() const noexcept override;
  [[nodiscard]] std::size_t ghosts() const noexcept override;
  [[nodiscard]] std::optional<auto_status> choosing() const override { return status(); }

  [[nodiscard]] auto_status status() const;

 private:
  enum class place : std::uint8_t { nowhere, waiting, live };
  /// Packed, since there is one for each block of the pool, and most pools never switch.
  struct [[gnu::packed]] state {
    static constexpr unsigned turn_bits = 38;
    std::uint64_t turn : turn_bits = 0;  ///< the low bits of its last use's; see turn_of()
    place where : 2 = place::nowhere;
    std::uint8_t uses : 8 = 0;  ///< since it came, at most 255
  };
  static_assert(sizeof(state) == 6);
  static constexpr std::uint64_t turn_mask = (std::uint64_t{1} << state::turn_bits) - 1;
  /// A block that the policy at work did not order when it came; stale if that is no more so, and then for good.
  struct waiting {
    std::uint64_t turn = 0;
    std::uint32_t block = 0;
  };

  void fit_shadow_caches();
  void watch(const request& request, std::uint32_t now);
  [[nodiscard]] bool is_sampled(std::uint64_t id) const noexcept;
  std::uint32_t take_sample(const request& request);
  void decide();
  [[nodiscard]] policy_selector::threshold switch_threshold(std::size_t candidate) const noexcept;
  void switch_to(const policy_selector::choice& successor);
  [[nodiscard]] bool is_stale(const waiting& entry) const noexcept;
  void bring(std::uint32_t block);
  [[nodiscard]] std::uint64_t next_turn(std::uint32_t now);
  [[nodiscard]] std::uint64_t turn_of(const state& entry) const noexcept;
  state& renew(std::uint32_t block, std::uint32_t now);
  void bring_resident(const request& request);
  void bring_some();

  block_links* links_;
  auto_options options_;
  request_clock clock_;
  std::unique_ptr<policy> active_;
  per_block<state> blocks_;
  std::vector<waiting> waiting_;  ///< the oldest first
  std::size_t oldest_ = 0;        ///< what lies before in it is stale
  std::uint32_t waits_ = 0;       ///< blocks that are in it and not stale
  /// Uses so far. The number of a block's last use orders blocks: a parent's is never older than its child's.
  std::uint64_t turns_ = 0;
  use_times times_;  ///< by turn
  std::uint32_t capacity_ = 0;
  bool full_ = false;                     ///< a victim was asked for
  std::optional<std::uint64_t> partial_;  ///< the present request's block that is not full of tokens, until then
  // The shadow caches and the choice between them.
  shadow_caches shadow_caches_;
  policy_selector selector_;
  std::vector<std::uint64_t> sample_;  ///< of the present request
  std::uint32_t thinning_ = 1;
  std::uint64_t requests_ = 0;
  std::uint64_t sampled_ = 0;
  std::uint64_t switches_ = 0;
};

}  // namespace cenote::eviction
