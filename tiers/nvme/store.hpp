// The NVMe tier's state: which block is where on which path, the transfers in flight, and the eviction order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/block_key.hpp"
#include "core/enum_names.hpp"
#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/instance_spec.hpp"
#include "core/time_types.hpp"
#include "memory/lower_hints.hpp"
#include "tiers/block_changes/block_changes.hpp"
#include "tiers/eviction/policy.hpp"
#include "tiers/nvme/catalog.hpp"
#include "tiers/nvme/counters.hpp"
#include "tiers/nvme/entry_keys.hpp"
#include "tiers/nvme/entry_table.hpp"
#include "tiers/nvme/io.hpp"
#include "tiers/nvme/slot_allocator.hpp"
#include "tiers/transfer.hpp"

namespace cenote::nvme {

using instance_number = std::uint32_t;  ///< the DRAM tier's

struct store_options {
  std::uint32_t paths = 0;
  bool keep_copy = true;      ///< of blocks that were brought up
  bool second_sight = false;  ///< admission filter: a block is written only when it comes for the second time
  std::string policy = "lru";
  double high_water = 1.0;             ///< of the capacity: eviction ahead of need starts above; 1: never
  double low_water = 1.0;              ///< … and ends below
  std::uint32_t errors_to_retire = 4;  ///< I/O errors in a row that take a path out of service
  bool keeps_keys = false;             ///< whole keys, which changes need: without them readers get none
  std::size_t most_changes = block_changes::usual_waiting;  ///< that may wait for a reader
};

/// What the tier needs of a stored_block (catalog.hpp): 48 bytes, because a start may read millions of them.
struct adopted_block {
  block_key key;
  std::uint64_t offset = 0;
  std::uint64_t checksum = 0;
  std::uint32_t sectors = 0;
  wall_time touch{};
  std::uint32_t owner = 0;   ///< its instance's place in a table of the caller
  std::uint32_t number = 0;  ///< … and its key's
};
static_assert(sizeof(adopted_block) == 48);
/// Nothing when the block's fields contradict each other.
[[nodiscard]] std::optional<adopted_block> adopted_from(const stored_block& block) noexcept;

/// I/O for a path's engine.
struct path_request {
  std::uint32_t path = 0;
  io_request io;
};
/// A change for a path's catalog.
struct path_change {
  std::uint32_t path = 0;
  catalog_change change;
};

enum class path_state : std::uint8_t {
  opening,  ///< waits for the last request of a worker that died, or reads its catalog
  serving,
  retired,  ///< out of service after I/O errors; probed from time to time
  failed,   ///< could not be opened, or one of its threads threw an exception
};
CENOTE_ENUM_NAMES(path_state, opening, serving, retired, failed);

struct path_status {
  path_state state = path_state::opening;
  std::uint64_t capacity = 0;  ///< bytes for blocks
  std::uint64_t used = 0;
  std::uint64_t blocks = 0;
  std::uint64_t errors = 0;
  std::uint64_t bad_bytes = 0;  ///< slots set aside because the file system had no space for them
  bool takes_writes = true;     ///< false after a failed write: other paths get the writes
  std::string why;              ///< text of the last error
};

struct store_status {
  std::uint64_t capacity = 0, used = 0, blocks = 0, bytes_in_flight = 0;
  store_counters counters;
  std::vector<path_status> paths;
};

struct aligned_free {
  void operator()(std::byte* memory) const noexcept { std::free(memory); }  // NOLINT(cppcoreguidelines-no-malloc)
};

/// Owned by one thread (the NVMe tier's actor). Does no I/O and never blocks: it makes requests, which the caller hands
/// to the paths' engines, and is given their completions. A copy is served only if the checksum of its bytes, its key
/// and its instance is the one that was written with it, whatever the metadata says.
class store {
 public:
  explicit store(store_options options);
  ~store();
  store(const store&) = delete;
  store& operator=(const store&) = delete;

  // ---- instances
  /// Serves the blocks of the instance with this identity (catalog.hpp) under `number` from now on. Where 65,535
  /// instances have blocks here, which is the most, the idle ones with the fewest leave. False: as many are in use.
  bool bind(instance_number number, instance_identity identity, memory::hint_writer hints);
  /// The instance was given up. Its blocks stay, and are served again when it is bound again.
  void unbind(instance_number number);
  /// The paths' catalogs have the name of this instance. forget_names() removes it if no block of it is here and it is
  /// not bound.
  void note_name(instance_identity identity) { nameless_.insert(identity); }
  /// Time to live of a bound instance's blocks since their last use. 0: for ever.
  void set_ttl(instance_number number, wall_seconds ttl) noexcept;
  /// Moves the blocks to another eviction policy, see blocks::store::set_policy().
  result<void> set_policy(const std::string& name);

  // ---- paths
  /// A path opened: blocks may lie at bytes [first, end) of its data file, at most as many as its metadata has room
  /// for.
  void open_path(std::uint32_t path, std::uint64_t first, std::uint64_t end, std::uint64_t max_blocks);
  /// Takes over a block of the path's catalog, after open_path(). False: its place is taken or out of range; the
  /// catalog forgets it. `key`: nothing where no keys are kept.
  bool adopt(std::uint32_t path, const adopted_block& block, const instance_identity& owner,
             const std::optional<entry_key>& key = {});
  /// The path could not be opened, or cannot be relied upon any more: this process serves none of its blocks.
  void path_failed(std::uint32_t path, std::string why);
  /// Probes retired paths, and puts those that answer back into service. Forgets expired blocks, and unused names. Call
  /// every few seconds.
  void tick(wall_time now);
  /// Has the catalogs forget the names of instances that are not bound and have no block. tick() does it, too; to be
  /// called before the process ends.
  void forget_names();
  [[nodiscard]] path_state state_of(std::uint32_t path) const noexcept { return paths_[path].state; }

  // ---- work; its results gather until take_…()
  void write(std::span<const transfer> blocks, wall_time now);
  void read(std::span<const transfer> blocks, wall_time now);
  void complete(std::uint32_t path, std::span<const io_completion> done, wall_time now);
  /// Forgets these keys, also those whose writes are in flight. Returns how many were here.
  std::uint64_t remove(instance_number number, std::span<const block_key> keys);
  std::uint64_t clear(instance_number number);
  /// The same, also for an instance that is not bound.
  std::uint64_t clear_identity(instance_identity identity);
  std::uint64_t clear_all();
  [[nodiscard]] bool contains(instance_number number, const block_key& key) const noexcept;

  [[nodiscard]] std::vector<path_request> take_requests();
  [[nodiscard]] std::vector<path_change> take_changes();
  [[nodiscard]] std::vector<transfer_outcome> take_outcomes();
  [[nodiscard]] std::vector<lost_block> take_lost();
  /// Identities whose names the catalogs have to forget.
  [[nodiscard]] std::vector<instance_identity> take_nameless();

  [[nodiscard]] store_status status() const;

  // ---- changes of blocks that can be found, each at the number of its entry
  [[nodiscard]] block_changes& changes() noexcept { return block_changes_; }
  /// See block_listing::list().
  block_place list(block_place first, std::size_t steps, std::vector<tier_change>& blocks) const;

 private:
  struct instance_entry {
    instance_identity identity{};
    instance_number number = 0;  ///< 0: not bound
    memory::hint_writer hints;
    wall_seconds ttl{};  ///< 0: none
    std::uint64_t blocks = 0;
  };
  struct path_entry {
    path_state state = path_state::opening;
    std::unique_ptr<slot_allocator> slots;
    std::uint64_t first = 0;  ///< byte where blocks start
    std::uint64_t max_blocks = 0;
    std::uint64_t blocks = 0;
    std::uint32_t errors_in_a_row = 0;
    std::uint64_t probe = 0;                                   ///< tag of the probe under way
    bool trial = false;                                        ///< the next write tests whether it takes writes again
    std::vector<std::pair<std::uint64_t, std::uint64_t>> bad;  ///< offset and bytes of slots without space
    std::size_t try_again = 0;                                 ///< how many of `bad` the next tick gives back
    path_status status;
  };
  /// Blocks of one length, which can take each other's slots.
  struct size_class {
    std::unique_ptr<eviction::policy> policy;
  };
  struct operation {
    transfer what;
    std::uint16_t instance = 0;
    std::uint32_t path = 0;
    std::uint64_t offset = 0;
    std::uint32_t entry = 0;  ///< of a read
    bool is_read = false;
    bool unwanted = false;  ///< removed meanwhile
  };

  std::optional<std::uint16_t> instance_of(instance_identity identity);
  [[nodiscard]] std::vector<std::uint16_t> idle_instances() const;
  void find_unused_instances();
  void evict_smallest_instances();
  [[nodiscard]] bool is_unused(instance_identity identity) const;
  void note_if_unused(std::uint16_t instance);
  [[nodiscard]] std::optional<std::uint16_t> bound(instance_number number) const noexcept;
  size_class& class_of(std::uint64_t bytes);
  bool admitted(const block_key& key);
  void write_one(const transfer& block, wall_time now);
  void read_one(const transfer& block, wall_time now);
  void finish_write(operation& done, const io_completion& completion, wall_time now);
  void finish_read(operation& done, const io_completion& completion, wall_time now);
  void leave_service(std::uint32_t path, path_state state);
  void note_error(std::uint32_t path, int error);
  void note_write_error(const operation& transfer, int error);
  void give_back_bad_slots(path_entry& to, std::size_t count);
  void restore_path(std::uint32_t path);
  std::optional<std::pair<std::uint32_t, std::uint64_t>> allocate(std::uint64_t bytes);
  [[nodiscard]] bool is_useless(std::uint32_t path) const noexcept;
  std::optional<std::pair<std::uint32_t, std::uint64_t>> free_slot(std::uint64_t bytes);
  bool evict_one(size_class& bin);
  void evict_ahead();
  [[nodiscard]] std::pair<size_class*, wall_time> oldest_class(std::uint64_t excluded_bytes);
  bool free_extent(std::uint64_t bytes);
  void erase(std::uint32_t entry, bool tell, bool evicted = false);
  void expire(wall_time now);
  void note_erased(std::uint32_t path, instance_identity identity, const block_key& key);
  void show(std::uint32_t entry, bool visible);
  [[nodiscard]] bool is_found(const block_entry& entry) const noexcept;
  void note_change(std::uint32_t entry, tier_change_kind kind);
  std::uint64_t erase_all_of(std::uint16_t instance);
  void answer(const transfer& block, transfer_result outcome);
  std::uint64_t forget_instance(std::uint16_t instance);
  void note_everywhere(catalog_change::kind what, instance_identity identity);

  store_options options_;
  entry_table entries_;
  entry_keys keys_;  ///< of entries, if they are kept
  block_changes block_changes_{options_.most_changes};
  eviction::block_links links_;
  std::map<std::uint64_t, size_class> classes_;  ///< by length in bytes
  std::vector<path_entry> paths_;
  std::vector<instance_entry> instances_;  ///< by the numbers of entries; the first is unused
  std::unordered_map<instance_identity, std::uint16_t> by_identity_;
  std::vector<std::uint16_t> unused_instances_;
  std::set<instance_identity> nameless_;  ///< identities that may be unused, whose names are to be forgotten then
  bool none_unused_ = false;              ///< no instance was unused at the last search, and none became so since
  std::unordered_map<instance_number, std::uint16_t> by_number_;
  std::unordered_map<std::uint64_t, operation> operations_;               ///< by the request's tag
  std::unordered_map<block_key, std::uint64_t, block_key_hash> writing_;  ///< key -> tag
  std::vector<std::uint32_t> seen_;                                       ///< second sight: tags of keys that came once
  std::uint64_t next_tag_ = 1;
  std::uint32_t expiry_at_ = 0;  ///< entry at which the next search for expired blocks begins
  std::uint32_t next_path_ = 0;
  std::vector<path_request> requests_;
  std::vector<path_change> changes_;
  std::vector<transfer_outcome> outcomes_;
  std::vector<lost_block> lost_;
  std::vector<instance_identity> forgotten_;  ///< identities for take_nameless()
  store_counters counters_;
  std::uint64_t bytes_in_flight_ = 0;
  std::unique_ptr<std::byte, aligned_free> probed_;  ///< a sector that probes read into
};

}  // namespace cenote::nvme
