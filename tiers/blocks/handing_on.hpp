// Handing on: what is here is written to where it belongs: all of it by a node that is about to leave its cluster, what
// no tier below has by one that is about to lose its memory, and what could not be written when it was stored by one
// that finds its cluster changed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "tiers/blocks/open_chains.hpp"
#include "tiers/blocks/state.hpp"

namespace cenote::blocks {

class eviction_order;
class lower_edges;
class transfer_table;

/// What became of the blocks that were to be handed on.
struct handed_on {
  std::uint64_t taken = 0;  ///< the tier below has them now
  std::uint64_t left = 0;  ///< it does not: it had no room, or there was no time. What left meanwhile counts as neither
  std::uint64_t left_bytes = 0;
};

enum class handing_purpose : std::uint8_t {
  leaving,   ///< blocks of all kinds; what is refused is offered again
  stopping,  ///< the same, but of blocks that no tier below has; over when the tier is away, or has no room for older
             ///< ones
  catch_up,  ///< what was stored here, or of it what the tier missed while it was away (late_offers), once each, in a
             ///< quarter of the window: what is stored meanwhile has the rest
};

/// Writes blocks to a tier below while they stay here, most recently used first, and of those that were used at once
/// the first ones of their slabs, with which prefixes begin; as many at a time as its window has room for. What that
/// tier has already is passed over, what it refuses is offered again a little later. In steps: none looks at more than
/// some thousand blocks, but for one that sorts them all (80 ms for a million).
class handing_on {
 public:
  handing_on(state& state, eviction_order& order, transfer_table& transfers, lower_edges& edges) noexcept
      : state_(state), order_(order), transfers_(transfers), edges_(edges) {}

  /// Ends one that is under way, as if its time were over.
  void begin(edge_number edge, handing_purpose purpose);
  [[nodiscard]] bool is_under_way() const noexcept { return is_under_way_; }
  [[nodiscard]] handing_purpose purpose() const noexcept { return purpose_; }
  /// True: there is more to do at once; else when transfers end, or never.
  bool step(boot_time now);
  /// All were written, or refused.
  [[nodiscard]] bool is_over() const noexcept;
  /// The blocks to be written are known, and so those that end() would leave.
  [[nodiscard]] bool is_sorted() const noexcept { return is_sorted_; }
  /// Writes nothing more. What was written by then.
  handed_on end();

 private:
  [[nodiscard]] slab* find(const chain_block& block) const noexcept;
  [[nodiscard]] bool has_it_below(const chain_block& block) const noexcept;
  void note_end(const chain_block& block);
  void offer_again(boot_time now);
  [[nodiscard]] bool is_wanted(std::uint32_t record) const;
  [[nodiscard]] bool has_room(const slab& home);
  void gather();
  /// To a tier that takes only what it missed.
  [[nodiscard]] bool offers_missed() const noexcept;
  void take_missed();
  void sort_wanted();
  bool write_some();
  [[nodiscard]] bool is_full() const noexcept;
  void refuse_rest();
  void settle();

  state& state_;
  eviction_order& order_;
  transfer_table& transfers_;
  lower_edges& edges_;
  handing_purpose purpose_ = handing_purpose::leaving;
  bool is_under_way_ = false;
  bool is_sorted_ = false;
  edge_number edge_ = 0;
  std::uint8_t copies_ = 0;        ///< flags of tiers: a block that one of them has is passed over
  std::uint32_t next_record_ = 0;  ///< of the slabs that are looked through
  std::vector<std::pair<std::uint64_t, chain_block>> wanted_;  ///< last used, block; the next one is the last
  std::deque<chain_block> written_;                            ///< and not known to have come
  std::vector<chain_block> refused_;
  unsigned tries_ = 0;
  boot_time again_at_{};
  handed_on so_far_;
};

}  // namespace cenote::blocks
