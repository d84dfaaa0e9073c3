// Eviction: from which pool, how many blocks, and when a pool is passed over.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class block_states;
class eviction_order;
class handed_out;
class pin_looks;

/// Takes blocks out of their pools' order and frees those that nobody holds.
class evictor {
 public:
  evictor(state& state, pin_looks& looks, eviction_order& order, block_states& blocks, handed_out& handed_out) noexcept
      : state_(state), pins_(looks), order_(order), blocks_(blocks), handed_out_(handed_out) {}

  void stay_within_capacity(std::uint64_t tolerated_bytes, boot_time now);
  std::uint32_t evict(pool& pool, std::uint32_t count, boot_time now, effort effort = effort::usual);
  std::uint32_t release_blocks(pool& pool, std::span<const memory::block_ref> refs, boot_time now);
  /// The next block to go of a pool, as its record.
  using victim_choice = std::optional<std::uint32_t> (*)(const pool&);
  /// The pool whose next victim was used least recently, among the pools of the lowest priority that have one; of those
  /// that pay into `within` (null: of all). Pools that are set aside are passed over.
  pool* pool_with_oldest(const account* within, boot_time now, victim_choice victim_of = oldest_of) const noexcept;
  std::uint32_t evict_oldest(const account* within, std::uint64_t bytes, boot_time now);
  bool evict_from_account(account& payer, pool& prefer, std::uint64_t bytes, boot_time now);

 private:
  std::vector<memory::block_ref> next_victims(pool& pool, std::uint32_t count, std::uint32_t& looks, boot_time now);
  bool evict_last_of_account(account& payer, boot_time now);

  state& state_;
  pin_looks& pins_;
  eviction_order& order_;
  block_states& blocks_;
  handed_out& handed_out_;
};

}  // namespace cenote::blocks
