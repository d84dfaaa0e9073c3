// Turns the blocks that sessions used and stored into requests of the eviction policies.
#pragma once

#include <cstdint>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;
class eviction_order;
class evictor;
class lower_edges;
class transfer_table;

/// Gathers chains of blocks from ring entries, and gives them their places in their pools' order.
class request_chains {
 public:
  request_chains(state& state, accounts& payers, transfer_table& transfers, eviction_order& order, evictor& evictor,
                 lower_edges& edges) noexcept
      : state_(state), accounts_(payers), transfers_(transfers), order_(order), evictor_(evictor), edges_(edges) {}

  progress run_touch(batch& work, session& session, const memory::submission& entry, boot_time now);
  void note_stored(pool& group, std::uint32_t record, std::uint64_t identity, std::uint64_t parent, session& session,
                   boot_time now);
  void place_stored(session& session, boot_time now);
  /// Some blocks of the request under way are in no policy yet.
  [[nodiscard]] bool is_storing() const noexcept { return storing_.group != nullptr; }
  /// Drops what is gathered for an instance that goes.
  void forget(const instance& gone) noexcept;

 private:
  void gather_touched(batch& work, session& session, const memory::submission& entry);
  progress use_chain(session& session, boot_time now);
  void use_block(pool& group, std::uint32_t record, boot_time now);
  std::uint32_t begin_request(pool& group, const std::vector<chain_block>& blocks, watched_request request,
                              boot_time now);
  [[nodiscard]] bool is_handed_on(const pool& group) const noexcept;
  [[nodiscard]] bool wants_ids(const pool& group) const noexcept;
  [[nodiscard]] std::vector<std::uint64_t> ids_of(const pool& group, const used_chain& used) const;
  void place_stored_blocks(pool& group, open_chains::chain& request, boot_time now);
  [[nodiscard]] bool wants(pool& group, std::uint32_t record, const open_chains::chain& request, boot_time now) const;
  void place_block(pool& group, std::uint32_t record, std::size_t left, boot_time now);
  void refresh_chain(pool& group, const std::vector<chain_block>& blocks, boot_time now);

  state& state_;
  accounts& accounts_;
  transfer_table& transfers_;
  eviction_order& order_;
  evictor& evictor_;
  lower_edges& edges_;
  stored_chain storing_;
};

}  // namespace cenote::blocks
