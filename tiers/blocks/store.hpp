// A store of blocks in memory that clients map, and read without a copy: instances, slabs, blocks, sessions, and every
// change to them.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "memory/block_record.hpp"
#include "memory/index.hpp"
#include "memory/version_table.hpp"
#include "tiers/block_changes/block_changes.hpp"
#include "tiers/blocks/handing_on.hpp"
#include "tiers/blocks/slab_request.hpp"
#include "tiers/blocks/types.hpp"
#include "tiers/prefetch/commands.hpp"
#include "tiers/transfer.hpp"

namespace cenote::blocks {

struct parts;

/// Owned by one thread (the DRAM tier's actor). Does no I/O and never blocks; memory comes and goes through
/// take_requests() / add_slab() / slab_dropped(). Every change makes its stores in such an order that a
/// worker killed between any two of them leaves a state that rebuild() understands.
class store {
 public:
  store(store_options options, memory::record_table records);
  ~store();
  store(const store&) = delete;
  store& operator=(const store&) = delete;

  // ---- instances
  /// The number of the instance with this spec; nothing when it is new; `spec_mismatch` names the differing field.
  [[nodiscard]] result<std::optional<instance_number>> find_instance(const instance_spec& spec,
                                                                     std::uint32_t owner = 0) const;
  /// Refuses a spec with blocks that do not fit into a slab of this tier, or of which none could stay below the high
  /// water mark.
  [[nodiscard]] result<void> check_fits(const instance_spec& spec) const;
  /// Adds an empty instance, claimed for the client that is about to attach to it.
  result<void> add_instance(instance_number number, const instance_spec& spec, memory::index_writer index,
                            memory::version_table versions, boot_time now = boot_time_of(0), std::uint32_t owner = 0);
  /// What the instance is of a whole one; before the next take_bindings().
  void set_share(instance_number number, std::shared_ptr<const instance_share> share);
  /// `limit_exceeded` when `owner` (a uid) may not make another one; idle instances make way as far as they can at
  /// once.
  result<void> make_room(std::uint32_t owner, boot_time now);
  /// A client is about to attach to it: it is not given up for the next few seconds.
  void claim_instance(instance_number number, boot_time now) noexcept;
  /// What a client maps: read-only descriptors of index and versions. Nothing for unknown instances.
  [[nodiscard]] std::optional<std::pair<unique_fd, unique_fd>> descriptors(instance_number number) const;
  /// Nothing when the slab is gone.
  [[nodiscard]] std::optional<memory::slab_place> slab_place_of(instance_number number, std::uint32_t index) const;
  /// A second descriptor of a slab, and its segment's size in bytes. Nothing when the slab is gone.
  [[nodiscard]] std::optional<std::pair<unique_fd, std::uint64_t>> slab_descriptor(instance_number number,
                                                                                   std::uint32_t index) const;
  /// Forgets every block of the instance called `id`, and returns how many; nothing when there is no such instance.
  /// Adds to `below` what the tiers below have to forget.
  std::optional<std::uint64_t> clear_instance(const std::string& id, boot_time now,
                                              std::vector<removal>* below = nullptr);
  std::uint64_t clear_all(boot_time now, std::vector<removal>* below = nullptr);
  /// Begins the same in steps, which clear_some() carries out: of the instance called `id`, or of all when it is empty.
  /// Nothing when there is no such instance.
  [[nodiscard]] std::optional<std::vector<clear_work>> begin_clear(const std::string& id, std::vector<removal>& below);
  /// … of the instance with this number, without a word to the tiers below.
  [[nodiscard]] std::optional<clear_work> begin_clear(instance_number number);
  /// Forgets these blocks, and what is on its way up of them, without a word to the tiers below. Returns how many there
  /// were.
  std::uint64_t forget_keys(instance_number number, std::span<const block_key> keys, boot_time now);
  /// Carries out up to `budget` steps. True: done.
  bool clear_some(clear_work& work, boot_time now, std::uint64_t budget);
  /// For tests of engines: alters every 16-bit word of every block that is here, and has all that is in the tier below
  /// forgotten, so that no right byte is left. Returns the number of blocks.
  std::uint64_t corrupt_all(std::vector<removal>& below);

  /// Instances that were added since the last call, for the tier below.
  [[nodiscard]] std::vector<instance_binding> take_bindings();
  /// Instances that were given up since the last call, for the tier below: what it holds of them it keeps.
  [[nodiscard]] std::vector<instance_number> take_given_up();
  /// Greater than every number that an instance ever had, also one that was given up.
  [[nodiscard]] instance_number next_instance() const noexcept;

  // ---- slabs
  [[nodiscard]] std::vector<slab_request> take_requests();
  void add_slab(const slab_description& what, memory::slab_mapping memory);
  /// The slab could not be made: its place is free again, and no other is asked for until `retry_after`.
  void slab_failed(const slab_description& what, boot_time retry_at);
  /// The memory of all slabs, each of which stays where it is until it is handed out with the request to drop it.
  [[nodiscard]] std::vector<std::span<std::byte>> slab_memory() const;
  /// The keeper has forgotten the slab: its numbers may be used again.
  void slab_dropped(const slab_description& what);

  // ---- sessions
  /// `uid`: the client's user, whose sessions share what one user may hold.
  result<void> add_session(session_number number, instance_number instance, memory::session_memory memory,
                           std::uint32_t uid = 0);
  /// The client is dead, or said that it is done: everything of it is free.
  void release_session(session_number number, boot_time now);
  /// The client's socket closed, it may be alive: takes back what it is not writing, frees its keys.
  void disconnect_session(session_number number, boot_time now);
  /// The client is back. `held`: what it may still be writing of what earlier workers handed out; nothing: it did not
  /// know yet all that they did.
  result<void> reattach_session(session_number number, std::optional<std::span<const held_parts>> held);
  /// Its batches are refused from now on. What the client is not writing goes back; its pins hold.
  void end_session(session_number number, boot_time now);
  /// Recovered sessions whose batches several workers died of: nothing of theirs is carried out any more, and their
  /// memory stays theirs until release_session().
  [[nodiscard]] std::vector<session_number> suspects() const;

  // ---- work
  /// Carries the batch on. finished: all entries took effect or were refused, `completions` has the answers. A step is
  /// a block that is looked at; a batch that takes more than `budget` of them goes on with the next call.
  progress run(batch& work, boot_time now, std::uint64_t budget = no_budget);
  /// Gives up waiting for memory: the entry that waits is refused with no_space, the rest goes on.
  void give_up(batch& work, boot_time now);
  /// Expires reservations, rescans zombies, notes how old pins are. Call a few times a second.
  void tick(boot_time now);
  /// One step of eviction ahead of need. True: more to do.
  bool evict_ahead(boot_time now);

  // ---- the tiers below
  /// The tier that writes hints of what it holds behind the index (memory/lower_hints.hpp); nothing: none does.
  [[nodiscard]] std::optional<edge_number> hinted_edge() const noexcept;
  /// Blocks to write down. They stay readable meanwhile, and keep their memory until transferred() names them.
  [[nodiscard]] std::vector<transfer> take_demotions(edge_number edge = 0);
  /// What expired since the last call, for the tier below.
  [[nodiscard]] std::vector<removal> take_expired();
  /// Transfers that ended, down or up. Returns tokens of loads that go on: their tier had nothing, and the next one is
  /// asked under the same token.
  std::vector<std::uint64_t> transferred(std::span<const transfer_outcome> outcomes, boot_time now);
  /// Makes room for a block and puts it on the list of take_loads(), unless it is here or on its way.
  prefetch::load_answer load(instance_number number, std::uint32_t group, const full_key& full, boot_time now);
  [[nodiscard]] std::vector<transfer> take_loads(edge_number edge = 0);
  /// The tier below has lost or evicted its copies of these blocks. Those without another copy are dirty again: they
  /// are written before they are evicted.
  void forget_copies(std::span<const lost_block> lost, edge_number edge = 0);
  /// A tier below takes and gives something from now on, or does not: then nothing new is sent there.
  void set_standing(edge_number edge, bool stands) noexcept;
  /// After a restart: all reads from this tier that the worker before had submitted have ended. Frees their memory.
  void release_loading(edge_number edge = 0);
  /// … or it can never be known whether they have: their memory is not used again. Each tick() gives up one slab that
  /// has such memory, as soon as no pin or writer holds another block of it.
  void abandon_loading(edge_number edge = 0) noexcept;
  /// Begins to write what is here to the first tier below that is asked what it holds, while it stays here: see
  /// handing_on.hpp. Errors: invalid_argument (there is no such tier), closed (it is away).
  result<void> begin_handing_on();
  /// The same of what no tier below has, to where evicted blocks go, for a node that is about to lose its memory.
  /// Error: invalid_argument (no tier below takes anything; other nodes do not count, which this one has left by then).
  result<void> begin_last_writes();
  /// The same for what could not be written when it was stored, since the tier, or the place in it, was away. False:
  /// nothing began, since the tier takes only what leaves, or blocks are handed on already.
  bool begin_catching_up(edge_number edge);
  /// One step. True: more to do at once.
  bool hand_on(boot_time now);
  /// What came of it, once all ended, or when the time is over and it is known what is left.
  [[nodiscard]] std::optional<handed_on> end_handing_on(bool is_late);
  /// Copies here wait for a comparison of their bytes with their sums: see sum_checks.hpp.
  [[nodiscard]] bool has_checks() const noexcept;
  /// One step of that. A block that was wrong: it is gone here, and is to go below.
  [[nodiscard]] std::optional<removal> check_some(boot_time now);
  /// Sessions of which too many blocks were wrong since the last call.
  [[nodiscard]] std::vector<wrong_session> take_wrong_sessions() noexcept;
  [[nodiscard]] bool is_present(instance_number number, std::uint32_t group, const full_key& full) const noexcept;

  // ---- prefetches
  /// What the batches that ran ask of the planner, in their order. It answers those that start a prefetch, later.
  [[nodiscard]] std::vector<prefetch::request> take_prefetches();
  /// Carries out a command of the planner. The result of a `release` is empty.
  prefetch::command_result execute(const prefetch::command& command, boot_time now);

  // ---- hand-overs: see published.hpp
  void follow(const handover::order& what, boot_time now);
  [[nodiscard]] std::vector<handover::news> take_news();

  // ---- requests of instances that are watched: see watched_requests.hpp
  [[nodiscard]] watched_requests& watched() noexcept;
  /// Hands on those of any policy until `end`, unless none are watched.
  void record_requests(boot_time end) noexcept;
  [[nodiscard]] bool is_recorded() const noexcept;

  // ---- changes of present blocks: see tiers/block_changes
  [[nodiscard]] block_changes& changes() noexcept;
  [[nodiscard]] const block_listing& listing() const noexcept;

  // ---- configuration
  /// Of a group that the configuration names, until set_groups().
  void set_quota(const std::string& group, std::uint64_t bytes);
  void set_water_marks(double high, double low) noexcept;
  /// Moves every pool's blocks to a new policy, in the order in which the old one would evict them. Blocks the caller
  /// for some tenths of a microsecond a block. Unknown names are refused.
  result<void> set_policy(const std::string& name, boot_time now);
  void set_groups(std::map<std::string, group_options> groups, boot_time now);
  void set_life(life_options life) noexcept;
  void set_limits(const limit_options& limits, boot_time now);
  void set_reserve_timeout(tenths timeout) noexcept;

  // ---- restart
  result<void> recover_instance(instance_number number, const instance_spec& spec, memory::shared_file index,
                                memory::version_table versions, std::uint32_t owner = 0);
  /// Slabs of instances that are unknown, or retired ones, are refused; the caller drops them.
  result<void> recover_slab(const slab_description& what, memory::slab_mapping memory);
  result<void> recover_session(session_number number, instance_number instance, memory::session_memory memory,
                               std::uint32_t uid = 0);
  /// After all recover_ calls: derives everything from the records. Returns the number of blocks that are served again.
  std::uint64_t rebuild(boot_time now);

  [[nodiscard]] store_status status(boot_time now) const;
  /// True while blocks wait for a pin or a writer to end, which tick() looks for.
  [[nodiscard]] bool has_leftovers() const noexcept;

 private:
  std::unique_ptr<parts> parts_;
};

}  // namespace cenote::blocks
