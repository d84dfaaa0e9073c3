// The store's parts, each above those that it uses.
#pragma once

#include <utility>

#include "tiers/dram/accounts.hpp"
#include "tiers/dram/allocator.hpp"
#include "tiers/dram/block_states.hpp"
#include "tiers/dram/clears.hpp"
#include "tiers/dram/eviction_order.hpp"
#include "tiers/dram/evictor.hpp"
#include "tiers/dram/expiry.hpp"
#include "tiers/dram/handed_out.hpp"
#include "tiers/dram/idle_instances.hpp"
#include "tiers/dram/instance_table.hpp"
#include "tiers/dram/kept_blocks.hpp"
#include "tiers/dram/lower_edges.hpp"
#include "tiers/dram/pin_looks.hpp"
#include "tiers/dram/prefetch_holds.hpp"
#include "tiers/dram/prefetch_requests.hpp"
#include "tiers/dram/recovery.hpp"
#include "tiers/dram/request_chains.hpp"
#include "tiers/dram/session_table.hpp"
#include "tiers/dram/slab_moves.hpp"
#include "tiers/dram/slab_space.hpp"
#include "tiers/dram/state.hpp"
#include "tiers/dram/submissions.hpp"
#include "tiers/dram/transfer_table.hpp"

namespace cenote::dram {

/// All of a store: the state that its parts share, and the parts. Its address is theirs: it stays where it is.
struct parts {
  parts(store_options with, memory::record_table records) : all(std::move(with), std::move(records)) {}
  parts(const parts&) = delete;
  parts& operator=(const parts&) = delete;

  state all;
  accounts payers{all};
  prefetch_holds holds{};
  transfer_table transfers{all};
  pin_looks pins{all, holds, transfers};
  eviction_order order{all, payers, transfers, pins};
  block_states blocks{all, payers, holds, transfers, pins, order};
  handed_out in_hands{all, payers, blocks};
  evictor evict{all, pins, order, blocks, in_hands};
  slab_space space{all, order};
  slab_moves moves{all, transfers, pins, order, blocks, in_hands, evict, space};
  allocator allocate{all, transfers, in_hands, evict, space, moves};
  kept_blocks kept{all, payers, pins, order};
  lower_edges edges{all, transfers, pins, order, blocks, evict, space, moves, allocate};
  request_chains chains{all, payers, transfers, order, evict, edges};
  instance_table table{all, payers, order, space};
  idle_instances idle{all, payers, evict, space, kept, edges, chains, table};
  clears clear{all, transfers, blocks, in_hands, edges};
  session_table attached{all, payers, holds, pins, blocks, in_hands, space, table};
  prefetch_requests prefetching{all, holds, transfers, pins, edges};
  expiry expire{all, blocks, edges};
  submissions submit{all, payers, transfers, blocks, in_hands, allocate, kept, edges, chains, clear, prefetching};
  recovery recover{all, payers, transfers, order, blocks, in_hands, space, table, attached};
};

}  // namespace cenote::dram
