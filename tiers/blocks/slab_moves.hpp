// Slabs that go from a pool to another one: emptied, their best blocks copied, given up.
#pragma once

#include <cstdint>
#include <vector>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class block_states;
class eviction_order;
class evictor;
class handed_out;
class pin_looks;
class slab_space;
class sum_checks;
class transfer_table;

/// Empties slabs in which nobody holds a block.
class slab_moves {
 public:
  slab_moves(state& state, transfer_table& transfers, pin_looks& looks, eviction_order& order, block_states& blocks,
             handed_out& handed_out, evictor& evictor, slab_space& space, sum_checks& checks) noexcept
      : state_(state),
        transfers_(transfers),
        pins_(looks),
        order_(order),
        blocks_(blocks),
        handed_out_(handed_out),
        evictor_(evictor),
        space_(space),
        checks_(checks) {}

  bool take_idle_slab(pool& into, boot_time now);
  bool steal_slab(pool& into, boot_time now, effort effort = effort::usual);
  bool drain(slab& victim, boot_time now);
  /// Memory could be made again.
  void note_memory() noexcept { stole_without_memory_ = false; }

 private:
  bool find_drainable(slab& victim, std::vector<memory::block_ref>& present, boot_time now);
  void move_hot_blocks(slab& origin, std::vector<memory::block_ref>& refs, boot_time now);

  state& state_;
  transfer_table& transfers_;
  pin_looks& pins_;
  eviction_order& order_;
  block_states& blocks_;
  handed_out& handed_out_;
  evictor& evictor_;
  slab_space& space_;
  sum_checks& checks_;
  bool stole_without_memory_ = false;  ///< a slab was given up although none could be made; cleared when one is
};

}  // namespace cenote::blocks
