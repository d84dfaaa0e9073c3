// Write-back to the tiers below, and loads from them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "tiers/blocks/open_chains.hpp"
#include "tiers/blocks/state.hpp"
#include "tiers/blocks/transfer_table.hpp"
#include "tiers/prefetch/commands.hpp"
#include "tiers/transfer.hpp"

namespace cenote::blocks {

class allocator;
class block_states;
class eviction_order;
class evictor;
class pin_looks;
class slab_moves;
class slab_space;
class sum_checks;

/// Blocks that came while a tier below was away; those that are gone by now stand here, too.
using missed_blocks = std::deque<chain_block>;
inline constexpr std::size_t most_missed_blocks = std::size_t{1} << 18U;  ///< the latest

/// Decides which blocks are written to which tier below and when, begins loads, and applies the results of both.
class lower_edges {
 public:
  lower_edges(state& state, transfer_table& transfers, pin_looks& looks, eviction_order& order, block_states& blocks,
              evictor& evictor, slab_space& space, slab_moves& moves, allocator& allocator, sum_checks& checks) noexcept
      : state_(state),
        transfers_(transfers),
        pins_(looks),
        order_(order),
        blocks_(blocks),
        evictor_(evictor),
        space_(space),
        moves_(moves),
        allocator_(allocator),
        checks_(checks) {}

  void write_through(slab& home, memory::block_ref ref, boot_time now, edge_number first = 0);
  void write_hot(slab& home, memory::block_ref ref, std::uint16_t hits);
  [[nodiscard]] std::optional<edge_number> source_of(const instance& instance, const block_key& key,
                                                     edge_set asked = {}) const noexcept;
  std::uint32_t write_oldest(pool& pool, std::uint32_t count, boot_time now);
  [[nodiscard]] std::optional<edge_number> demotion_edge() const noexcept { return demotion_edge(state_.away); }
  /// … of those that are not barred.
  [[nodiscard]] std::optional<edge_number> demotion_edge(const edge_set& barred) const noexcept;
  /// When a block here was used last of which the tier gave up its copy since begin_losses(); 0: there is none.
  [[nodiscard]] boot_time latest_loss(edge_number edge) const noexcept { return losses_[edge]; }
  void begin_losses(edge_number edge) noexcept { losses_[edge] = {}; }
  /// Transfers that ended, down or up. Returns tokens of loads that go on: their tier had nothing, and the next one is
  /// asked.
  std::vector<std::uint64_t> transferred(std::span<const transfer_outcome> outcomes, boot_time now);
  [[nodiscard]] bool is_present(instance_number number, std::uint32_t group, const full_key& full) const noexcept;
  /// The tiers below that say nothing of what they hold unless they are asked.
  [[nodiscard]] edge_set unhinted() const noexcept;
  /// Makes room for a block and puts it on the list of take_loads(), unless it is here or on its way. `from`: the tier
  /// below that said to have it, if one did; `node`: see transfer::from.
  prefetch::load_answer load(instance_number number, std::uint32_t group, const full_key& full, boot_time now,
                             std::optional<edge_number> from = {}, std::uint32_t node = 0);
  void note_removal(instance& instance, const block_key& key, std::vector<removal>& below);
  /// The tier below has lost or evicted its copies of these blocks. Those without another copy are dirty again: they
  /// are written before they are evicted.
  void forget_copies(edge_number edge, std::span<const lost_block> lost);
  void forget_copy(slab& home, memory::block_ref ref, std::uint8_t copies);
  bool write_copy(edge_number edge, slab& home, memory::block_ref ref, write_occasion occasion);
  [[nodiscard]] const missed_blocks& missed(edge_number edge) const noexcept { return missed_[edge]; }
  [[nodiscard]] missed_blocks take_missed(edge_number edge) noexcept { return std::exchange(missed_[edge], {}); }
  /// To be offered to the tier when it is back.
  void note_missed(edge_number edge, const chain_block& block);
  void drain_lost(boot_time now);
  /// One step of eviction ahead of need. True: more to do.
  bool evict_ahead(boot_time now);
  /// Shares of the capacity; what is on its way to the earlier low mark ends here.
  void set_water_marks(double high, double low) noexcept;
  /// After a restart: all reads from this tier that the worker before had submitted have ended. Frees their memory.
  void release_loading(edge_number edge);

 private:
  void write_down(edge_number edge, slab& home, memory::block_ref ref, bool leaves, write_occasion occasion);
  bool demote_ahead(boot_time now);
  [[nodiscard]] std::uint64_t unwritten_excess() const noexcept;
  void finish_write(const moving_block& moved, std::uint32_t number, const transfer_outcome& outcome, boot_time now,
                    std::map<pool*, std::vector<memory::block_ref>>& leaving);
  std::uint64_t begin_load(slab& home, std::uint32_t number, const moving_block& what, std::uint32_t node = 0);
  bool load_from_next(const moving_block& moved, std::uint32_t number);
  void finish_load(const moving_block& moved, std::uint32_t number, const transfer_outcome& outcome, boot_time now);

  state& state_;
  transfer_table& transfers_;
  pin_looks& pins_;
  eviction_order& order_;
  block_states& blocks_;
  evictor& evictor_;
  slab_space& space_;
  slab_moves& moves_;
  allocator& allocator_;
  sum_checks& checks_;
  std::array<boot_time, max_edges> losses_{};
  std::array<missed_blocks, max_edges> missed_{};
  // Eviction ahead of need has passed the high water mark and goes on to the low one:
  bool is_lowering_ = false;  ///< … without a tier below
  bool is_draining_ = false;  ///< … of blocks that a tier below has
};

}  // namespace cenote::blocks
