// The index in memory: a forest of runs of blocks, and the sets of holders of each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "services/indexer/forest/block_eviction.hpp"
#include "services/indexer/forest/forest_parts.hpp"
#include "services/indexer/forest/span_editor.hpp"

namespace cenote::indexer {

struct forest_options {
  std::size_t memory = std::size_t{2} << 30;         ///< bytes, a hard bound; at least forest::least_memory
  std::size_t members = holder_table::most_holders;  ///< ranks of pods at most
  std::size_t repeats = std::size_t{1} << 18;        ///< (block, holder) whose repeated stores are counted, at most
  std::uint64_t seed = 0;                            ///< of hash tables; 0: a random one
};

/// Options of an index with so much memory: as many ranks of pods as suit it.
[[nodiscard]] forest_options forest_options_for(std::size_t memory) noexcept;

/// Reasons for which nothing was stored.
enum class store_refusal : std::uint8_t {
  unknown_parent,   ///< the index does not know the parent
  name_conflict,    ///< names would break the rule in this domain: the publisher wants a domain of its own
  dead_holder,      ///< the holder was killed, or never had a number
  unequal_lengths,  ///< neither no hash nor one a key
};

/// The names that a block may have in one domain.
enum class name_rule : std::uint8_t {
  several_names,  ///< any
  one_name,       ///< another hash of a block that has one is a conflict: its publisher's hashes differ
};

/// The way in which blocks are stored.
struct store_rule {
  name_rule names = name_rule::several_names;
  /// Blocks into which one of the engine's is cut: keys are as many or a multiple. Engine's blocks can share all but
  /// the last, which therefore may have several names, and each store of which wants a removal of its own in all media.
  std::uint32_t step = 1;
};

struct block_change {
  std::size_t blocks = 0;   ///< which the index knows
  std::size_t unknown = 0;  ///< names that name none
};

/// Consecutive blocks of a holder.
struct held_blocks {
  std::optional<std::uint64_t> parent;  ///< key of the block in front of them
  std::span<const std::uint64_t> keys;
  std::span<const std::uint64_t> hashes;  ///< `unnamed` where there is none
  name_domain domain = no_domain;
};

struct forest_figures {
  std::size_t bytes = 0;           ///< in use, of the bound
  std::size_t block_capacity = 0;  ///< blocks for which there is memory
  std::size_t free_blocks = 0;     ///< of these in no run
  std::size_t runs = 0;            ///< numbers of runs that were given out
  std::size_t sets = 0;            ///< of several holders
  std::size_t repeats = 0;         ///< (block, holder) that were stored more than once
  std::uint64_t repeats_refused = 0;
  std::uint64_t evicted = 0;       ///< blocks that made room for others
  std::uint64_t evicted_held = 0;  ///< of these with holders
  std::uint64_t refused = 0;       ///< blocks that were not stored because memory was out
};

/// Holders of blocks. Keys are chained: a key stands for its block and all in front of it, so runs of
/// consecutive blocks are compared at their ends and searched by halves (chain hashes as in vLLM's prefix cache;
/// interval lists of holders as in SMG's chain index). One thread calls this; prefix_reader answers beside it without
/// locks. What a call refuses it leaves as it was.
class forest {
 public:
  static constexpr std::size_t least_memory = std::size_t{1} << 20;

  /// Throws std::bad_alloc, also below least_memory.
  explicit forest(const forest_options& options);
  forest(const forest&) = delete;
  forest& operator=(const forest&) = delete;
  forest(forest&&) = delete;
  forest& operator=(forest&&) = delete;
  ~forest() = default;

  [[nodiscard]] holder_table& holders() noexcept { return parts_.holders; }
  [[nodiscard]] node_links& links() noexcept { return parts_.links; }
  [[nodiscard]] model_table& models() noexcept { return parts_.models; }
  [[nodiscard]] index_budget& budget() noexcept { return parts_.budget; }

  /// The holder has the blocks of `keys`, which follow `parent` (no_block: begin a chain). `hashes` are their names in
  /// `domain`, or empty. The answer is how many were stored: fewer than keys where memory is out. A second store by a
  /// GPU changes nothing; by another medium it wants a second removal.
  [[nodiscard]] std::expected<std::size_t, store_refusal> store(name_domain domain, block_number parent,
                                                                std::span<const std::uint64_t> keys,
                                                                std::span<const std::uint64_t> hashes, holder stored_by,
                                                                store_rule rule = {}) noexcept;
  /// The holder has these blocks, which the index knows, too; unknown ones are counted, as those for which memory is
  /// out.
  block_change hold(std::span<const block_number> blocks, holder stored_by,
                    repeat_rule repeats = repeat_rule::by_medium) noexcept;
  /// The holder has the blocks of these names no more.
  block_change remove(name_domain domain, std::span<const std::uint64_t> hashes, holder removed) noexcept;
  /// The same of blocks; unknown ones are counted.
  block_change remove(std::span<const block_number> blocks, holder removed) noexcept;

  /// The block of a name; no_block if it names none.
  [[nodiscard]] block_number block_of(name_domain domain, std::uint64_t hash) const noexcept {
    return parts_.names.find(domain, hash);
  }
  /// The block of a key behind `parent`, or at the begin of a run; no_block if it is unknown.
  [[nodiscard]] block_number block_behind(block_number parent, std::uint64_t key) const noexcept;
  /// Whether the holder has the block.
  [[nodiscard]] bool is_held(block_number block, holder number) const noexcept;
  /// The key of a block; none if the index does not know it.
  [[nodiscard]] std::optional<std::uint64_t> key_of(block_number block) const noexcept;
  /// The stand-in for the hash of a block without one.
  [[nodiscard]] std::uint64_t unnamed() const noexcept { return parts_.names.unnamed(); }

  /// The names of this domain end; a sweep that begins afterwards takes them out, and makes the domain free.
  void end_domain(name_domain domain);
  /// Names a block in a further domain; false: the name is another block's, or memory is out.
  bool name(name_domain domain, block_number block, std::uint64_t hash) noexcept;
  /// A domain that no name is in; none: there are too many.
  [[nodiscard]] std::optional<name_domain> begin_domain();

  /// The holder has nothing from now on and its number is dead. O(1); sweep() gives the memory back.
  void clear(holder cleared) noexcept { parts_.holders.kill(cleared); }
  /// Looks at up to `runs` runs for blocks of dead holders and names of ended domains; true if there are none any more.
  bool sweep(std::size_t runs) noexcept;

  /// The coarse time by which blocks were used last; monotone, at least 1.
  void advance_clock(std::uint32_t now) noexcept { parts_.clock.store(now, std::memory_order_relaxed); }

  /// Calls `visit` with all blocks of the holder, parents first. Memory of its own, beside the bound; throws
  /// std::bad_alloc.
  void dump(holder dumped, const std::function<void(const held_blocks&)>& visit) const;

  /// Makes ready for use what readers have left behind.
  void reclaim() noexcept { parts_.reclaim(); }

  [[nodiscard]] std::size_t bytes() const noexcept { return parts_.budget.used(); }
  [[nodiscard]] forest_figures figures() const noexcept;

 private:
  friend class prefix_reader;

  /// Between two blocks of a run: `offset` blocks of it are in front.
  struct position {
    std::uint32_t run = no_run;
    std::uint32_t offset = 0;
  };

  [[nodiscard]] std::uint32_t pass_known(position& cursor, std::span<const std::uint64_t> keys) const noexcept;
  [[nodiscard]] std::optional<std::size_t> count_known(name_domain domain, position cursor,
                                                       std::span<const std::uint64_t> keys,
                                                       std::span<const std::uint64_t> hashes,
                                                       store_rule rule) const noexcept;
  [[nodiscard]] bool is_conflict(name_domain domain, position begin, std::span<const std::uint64_t> hashes,
                                 std::size_t first_key, store_rule rule) const noexcept;
  [[nodiscard]] bool name_known(name_domain domain, position begin, std::span<const std::uint64_t> hashes) noexcept;
  [[nodiscard]] std::size_t append(name_domain domain, position& cursor, std::span<const std::uint64_t> keys,
                                   std::span<const std::uint64_t> hashes, holder added) noexcept;
  [[nodiscard]] bool begin_run(name_domain domain, position& cursor, std::uint64_t key, std::size_t request) noexcept;
  [[nodiscard]] bool add(position begin, std::uint32_t count, holder added, repeat_rule repeats) noexcept;
  template <class Change>
  block_change change_stretches(std::span<const block_number> blocks, Change&& change) noexcept;
  void remove_stretch(std::uint32_t run, std::uint32_t first, std::uint32_t last, holder removed) noexcept;
  void sweep_names(std::uint32_t run) noexcept;
  void sweep_run(std::uint32_t run) noexcept;

  forest_parts parts_;
  span_editor editor_;
  block_eviction eviction_;
  std::uint64_t refused_ = 0;
  std::vector<name_domain> ended_domains_, free_domains_;
  name_domain domain_bound_ = 0;
  std::size_t swept_dead_ = 0;     ///< holders whose sweep is under way
  std::size_t swept_domains_ = 0;  ///< domains whose sweep is under way
  bool is_sweeping_ = false;
  std::uint32_t sweep_at_ = 0;
};

}  // namespace cenote::indexer
