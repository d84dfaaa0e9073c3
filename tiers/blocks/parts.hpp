// The store's parts, each above those that it uses.
#pragma once

#include <utility>

#include "tiers/blocks/accounts.hpp"
#include "tiers/blocks/allocator.hpp"
#include "tiers/blocks/block_states.hpp"
#include "tiers/blocks/clears.hpp"
#include "tiers/blocks/eviction_order.hpp"
#include "tiers/blocks/evictor.hpp"
#include "tiers/blocks/expiry.hpp"
#include "tiers/blocks/handed_out.hpp"
#include "tiers/blocks/handing_on.hpp"
#include "tiers/blocks/idle_instances.hpp"
#include "tiers/blocks/instance_table.hpp"
#include "tiers/blocks/kept_blocks.hpp"
#include "tiers/blocks/lower_edges.hpp"
#include "tiers/blocks/pin_looks.hpp"
#include "tiers/blocks/pin_shares.hpp"
#include "tiers/blocks/prefetch_holds.hpp"
#include "tiers/blocks/prefetch_requests.hpp"
#include "tiers/blocks/present_list.hpp"
#include "tiers/blocks/recovery.hpp"
#include "tiers/blocks/request_chains.hpp"
#include "tiers/blocks/session_table.hpp"
#include "tiers/blocks/slab_moves.hpp"
#include "tiers/blocks/slab_space.hpp"
#include "tiers/blocks/state.hpp"
#include "tiers/blocks/submissions.hpp"
#include "tiers/blocks/sum_checks.hpp"
#include "tiers/blocks/transfer_table.hpp"

namespace cenote::blocks {

/// All of a store: the state that its parts share, and the parts. Its address is theirs: it stays where it is.
struct parts {
  parts(store_options with, memory::record_table records) : all(std::move(with), std::move(records)) {}
  parts(const parts&) = delete;
  parts& operator=(const parts&) = delete;
  ~parts() = default;

  state all;
  accounts payers{all};
  prefetch_holds holds{};
  transfer_table transfers{all};
  pin_looks pins{all, holds, transfers};
  eviction_order order{all, payers, transfers, pins};
  block_states blocks{all, payers, holds, transfers, pins, order};
  handed_out in_hands{all, payers, blocks};
  sum_checks checks{all, blocks};
  evictor evict{all, pins, order, blocks, in_hands};
  slab_space space{all, order};
  slab_moves moves{all, transfers, pins, order, blocks, in_hands, evict, space, checks};
  pin_shares pinned{all, payers};
  allocator allocate{all, transfers, in_hands, evict, space, moves, pinned};
  kept_blocks kept{all, payers, order};
  lower_edges edges{all, transfers, pins, order, blocks, evict, space, moves, allocate, checks};
  handing_on handing{all, order, transfers, edges};
  request_chains chains{all, payers, transfers, order, evict, edges};
  instance_table table{all, payers, order, space};
  idle_instances idle{all, payers, evict, space, kept, edges, chains, table};
  clears clear{all, transfers, blocks, in_hands, edges};
  session_table attached{all, payers, holds, pins, blocks, in_hands, table};
  prefetch_requests prefetching{all, holds, transfers, pins, edges};
  expiry expire{all, blocks, edges};
  submissions submit{all,  payers, transfers, blocks, in_hands,    allocate,
                     kept, edges,  chains,    clear,  prefetching, checks};
  present_list listing{all};
  recovery recover{all, payers, transfers, order, blocks, in_hands, space, table, attached};
};

}  // namespace cenote::blocks
