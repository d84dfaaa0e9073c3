// Where free blocks come from: free lists, new slabs, eviction, slabs of other pools.
#pragma once

#include <cstdint>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class evictor;
class handed_out;
class pin_shares;
class slab_moves;
class slab_space;
class transfer_table;

/// Finds a free block for a pool, within the quotas of who pays for it.
class allocator {
 public:
  allocator(state& state, transfer_table& transfers, handed_out& handed_out, evictor& evictor, slab_space& space,
            slab_moves& moves, pin_shares& pinned) noexcept
      : state_(state),
        transfers_(transfers),
        handed_out_(handed_out),
        evictor_(evictor),
        space_(space),
        moves_(moves),
        pinned_(pinned) {}

  allocation allocate(pool& pool, memory::block_ref& ref, std::uint32_t more, boot_time now) {
    return allocate(pool, ref, more, now, false);
  }
  allocation allocate_for_put(pool& pool, memory::block_ref& ref, std::uint32_t more, boot_time now);

 private:
  allocation allocate(pool& pool, memory::block_ref& ref, std::uint32_t more, boot_time now, bool is_put);
  allocation keep_within(account& payer, pool& pool, boot_time now, bool is_put);
  [[nodiscard]] bool is_writing_for(const account& payer) const noexcept;
  allocation find_room(pool& into, std::uint32_t more, boot_time now);

  state& state_;
  transfer_table& transfers_;
  handed_out& handed_out_;
  evictor& evictor_;
  slab_space& space_;
  slab_moves& moves_;
  pin_shares& pinned_;
};

}  // namespace cenote::blocks
