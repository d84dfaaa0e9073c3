// A block's way from blank to present, and back to free.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class accounts;
class eviction_order;
class pin_looks;
class prefetch_holds;
class transfer_table;

/// Publishes blocks, forgets them and frees their memory: each change of a record's state that makes a block a hit or
/// ends it.
class block_states {
 public:
  block_states(state& state, accounts& payers, prefetch_holds& held, transfer_table& transfers, pin_looks& looks,
               eviction_order& order) noexcept
      : state_(state), accounts_(payers), holds_(held), transfers_(transfers), pins_(looks), order_(order) {}

  struct block_times {
    boot_time arrival;  ///< to this node; boot_time{}: not known
    boot_time use;      ///< the last one
  };

  void publish(instance& instance, slab& home, memory::block_ref ref, const full_key& key, block_times times,
               std::optional<std::uint64_t> checksum = {}, block_kind kind = block_kind::own);
  /// A block that came and was used at once.
  void publish(instance& instance, slab& home, memory::block_ref ref, const full_key& key, boot_time now,
               std::optional<std::uint64_t> checksum = {}) {
    publish(instance, home, ref, key, {now, now}, checksum);
  }
  /// The same for the copy of a block that was at record `origin`, which is free already but for its key.
  void publish_moved(instance& instance, slab& home, memory::block_ref ref, std::uint32_t origin, boot_time now,
                     std::optional<std::uint64_t> checksum, block_kind kind);
  void free_block(instance& instance, slab& home, memory::block_ref ref);
  std::uint64_t forget_blocks(instance& instance, std::span<const memory::block_ref> refs, boot_time now);
  void rescan_zombies(instance& instance);
  void restore(instance& instance, slab& home, memory::block_ref ref);

 private:
  void make_present(instance& instance, slab& home, memory::block_ref ref, const full_key& key, block_times times,
                    std::optional<std::uint64_t> checksum, block_kind kind);

  state& state_;
  accounts& accounts_;
  prefetch_holds& holds_;
  transfer_table& transfers_;
  pin_looks& pins_;
  eviction_order& order_;
};

}  // namespace cenote::blocks
