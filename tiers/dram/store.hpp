// The DRAM tier's state: instances, slabs, blocks, sessions, and every change to them.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/choices.hpp"
#include "core/error.hpp"
#include "core/instance_spec.hpp"
#include "memory/block_record.hpp"
#include "memory/index.hpp"
#include "memory/session_memory.hpp"
#include "memory/version_table.hpp"
#include "tiers/dram/counters.hpp"
#include "tiers/dram/open_chains.hpp"
#include "tiers/dram/slab.hpp"
#include "tiers/eviction/automatic.hpp"
#include "tiers/eviction/policy.hpp"
#include "tiers/prefetch/orders.hpp"
#include "tiers/transfer.hpp"

namespace cenote::dram {

using instance_number = std::uint32_t;
using session_number = std::uint64_t;
/// Tenths of a second since boot: survives a restart of the worker, not of the machine. As DRAM does.
/// Goes around after 13.6 years: never compare two of them but by the functions below.
using coarse_time = std::uint32_t;

/// True when `deadline`, at most six years away, is not after `now`.
[[nodiscard]] constexpr bool is_due(coarse_time deadline, coarse_time now) noexcept {
  return static_cast<std::int32_t>(now - deadline) >= 0;
}
/// Tenths of a second since `then`; 0 when it is after `now`.
[[nodiscard]] constexpr coarse_time age_of(coarse_time then, coarse_time now) noexcept {
  return is_due(then, now) ? now - then : 0;
}

using cenote::ingest;
using cenote::priority;

/// What the store does with a tier below it.
struct lower_options {
  bool present = false;
  dram::ingest ingest = dram::ingest::evicted;
  std::uint32_t hot_accesses = 2;
  bool keep_copy = true;           ///< the tier below keeps what it gave
  std::uint64_t write_window = 0;  ///< bytes on their way down at once
  std::uint64_t read_window = 0;   ///< … up
  double write_ahead = 0;  ///< share of the capacity whose oldest blocks are kept with a copy below, ready to go
};

/// What an instance group is given.
struct group_options {
  std::uint64_t quota = 0;                           ///< bytes of DRAM; 0: no limit
  dram::priority priority = dram::priority::normal;  ///< no block goes while a group of a lower class has one that can
  coarse_time ttl = 0;                               ///< blocks that nobody used for so long are forgotten; 0: never
  std::uint64_t keep_quota = 0;                      ///< bytes that kept blocks may take; 0: a tenth of the capacity
  std::vector<full_key> keep{};                      ///< blocks that stay when they come
};

/// When an instance without a session is given up; see store_life.cpp.
struct life_options {
  coarse_time idle = 0;         ///< after so long; 0: never
  coarse_time empty = 0;        ///< without a block it goes after so long; 0: as any other
  coarse_time claim = 100;      ///< an instance that somebody is about to attach to is left alone for so long
  std::uint32_t instances = 0;  ///< there are never more; idle ones go early from seven eighths on; 0: no limit
  std::uint32_t per_owner = 0;  ///< the same of the instances that one user made; who leaves as many to others
  std::vector<std::uint32_t> trusted{};  ///< … but for these users, who leave what they like
  std::uint32_t comfortable = 0;         ///< as `instances`, but there may be more: what descriptors suffice for
};

/// What one tenant may take from the others; shares are of the capacity.
struct limit_options {
  /// Bytes of blank blocks (granted, reserved, or set aside since their writers are unknown) in the hands of one
  /// session or of one user, of a group twice as much. 64 blocks are always allowed.
  double reserve_share = 0.25;
  double keep_share = 0.5;        ///< bytes of kept blocks, of all groups together
  std::uint64_t group_quota = 0;  ///< bytes: quota of accounts that `groups` gives none; 0: none
  bool open_groups = false;       ///< groups that `groups` does not name have accounts of their own
  std::uint64_t user_quota = 0;   ///< bytes that the instances of one user of the account `default` hold; 0: no limit
  double user_keep_share = 0.5;   ///< of what that account may keep: kept blocks of one user's instances
};

struct store_options {
  std::uint64_t capacity = 0;    ///< bytes of all slabs together, trailers included
  double high_water = 0.97;      ///< of the capacity: eviction ahead of need starts above
  double low_water = 0.94;       ///< … and ends below
  std::uint64_t slab_bytes = 0;  ///< 0: by capacity
  std::uint32_t max_grants = 1024;
  bool grants_in_capacity = true;  ///< false: only cached blocks count, and memory may exceed the capacity by an eighth
  coarse_time reserve_timeout = 300;
  bool checksum_at_commit = false;
  std::string policy = "lru";
  std::map<std::string, group_options> groups;  ///< by name; the others share the account called `default`
  limit_options limits;
  lower_options lower;
  std::uint64_t hold_bytes = 0;      ///< the most that prefetches may keep from eviction; 0: half of the capacity
  std::uint64_t first_transfer = 1;  ///< number of the first transfer to or from the tier below; for tests of late ones
  life_options life;
};

/// What the store asks of the provisioner.
struct slab_request {
  enum class kind : std::uint8_t {
    create,
    drop,
    forget,  ///< the instance `slab.instance`: comes behind the drops of its slabs
  };
  kind what = kind::create;
  slab_description slab;
  memory::segment memory{};          ///< drop: the mapping to give up
  memory::shared_file index{};       ///< forget: the instance's
  memory::version_table versions{};  ///< forget: the instance's
};

/// Keys that were removed, for the tier below.
struct removal {
  instance_number instance = 0;
  bool all = false;             ///< the whole instance; of number 0: see `id`
  std::vector<block_key> keys;  ///< unless all
  std::string id{};             ///< number 0: of an instance that is not here; empty: all that the tier below holds
};

/// Parts of a block that a client says it may be writing; all bits: it does not know which.
struct held_parts {
  std::uint64_t block = 0;  ///< block_ref
  std::uint32_t grant_version = 0;
  std::uint64_t parts = 0;
};

/// An instance that is being cleared, in steps. While one lives, no block of the instance moves or comes up from below,
/// so that nothing escapes to where it has been already.
struct clear_work {
  instance_number instance = 0;
  std::vector<std::uint64_t> reserved;  ///< blocks that were being written when it began; from the back
  std::vector<std::uint32_t> slabs;     ///< that there were when it began; from the back
  std::uint32_t next_block = 0;         ///< of the last slab
  std::uint64_t cleared = 0;
  std::shared_ptr<const void> under_way;  ///< counted by the instance
};

/// One session's submissions on their way through the store.
struct batch {
  session_number session = 0;
  std::vector<memory::submission> entries;
  std::vector<memory::completion> completions;
  std::vector<removal> removals{};  ///< what the tier below must forget before the batch is answered
  std::size_t next = 0;             ///< first entry that has no effect yet
  std::uint64_t effects = 0;        ///< of the request under way
  error_code refusal = error_code::ok;
  std::uint32_t refusal_index = 0;
  std::optional<clear_work> clearing{};    ///< of the entry under way
  std::shared_ptr<const void> removing{};  ///< no block comes up before the tier below has heard of `removals`
  std::uint64_t touched = 0;               ///< blocks that its touch records named so far
  std::uint64_t late_answers = 0;          ///< how many requests are answered later, by the planner of prefetches
};

/// The answers to requests of the batch that remove something, and were carried out, become `why`.
void fail_removals(batch& finished, error_code why) noexcept;

enum class progress : std::uint8_t {
  finished,
  waits_for_memory,
  more,  ///< the budget is used up
};

using prefetch::load_answer;
using prefetch::load_state;

/// What the tier below needs of an instance: its hints lie behind the index.
struct instance_binding {
  instance_number number = 0;
  instance_spec spec;
  memory::shared_file index;
};

struct instance_status {
  std::string id, group;
  std::string account;  ///< who pays: the group, or `default`
  std::uint64_t present = 0, free = 0, slabs = 0, bytes = 0, sessions = 0, index_slots = 0, index_entries = 0;
  std::uint64_t zombie = 0, quarantined = 0, pending = 0, loading = 0;
  std::optional<coarse_time> idle;              ///< for how long it has had no session; nothing while it has one
  std::optional<coarse_time> given_up;          ///< in how long that ends it; nothing: never, or it has a session
  std::optional<eviction::auto_status> chosen;  ///< of the first group, where the policy is `auto`
};
struct session_status {
  session_number number = 0;
  std::string instance;
  std::uint64_t pins = 0, grants = 0, writing = 0;
  coarse_time oldest_pin = 0;  ///< age, tenths of a second; at least that old
  bool connected = true;
};
struct account_status {
  std::string name;
  std::uint64_t quota = 0, used = 0, kept = 0;
  std::uint64_t reserved = 0;  ///< bytes of blocks that are being written part by part, or set aside
  dram::priority priority = dram::priority::normal;
  std::optional<std::uint32_t> uid{};  ///< of the user, where it is one of several who share an account
};
struct store_status {
  std::uint64_t capacity = 0, assigned = 0, used = 0, slabs = 0;
  std::uint64_t cached = 0;  ///< bytes of blocks that are hits
  std::uint64_t present = 0, granted = 0, pending = 0, quarantined = 0, zombie = 0, free = 0, loading = 0;
  std::uint64_t writing_bytes = 0, loading_bytes = 0;  ///< on their way to and from the tier below
  std::uint64_t held_bytes = 0;                        ///< kept from eviction for whoever prefetched them
  store_counters counters;
  std::vector<instance_status> instances;
  std::vector<session_status> sessions;
  std::vector<account_status> accounts;
  std::vector<account_status> users;  ///< who share an account, within it
};

/// Owned by one thread (the DRAM tier's actor). Does no I/O and never blocks; memory comes and goes through
/// take_requests() / add_slab() / slab_dropped(). Every change follows MEMORY.md's order of stores, so that a worker
/// killed between any two of them leaves a state that rebuild() understands.
class store {
 public:
  store(store_options options, memory::record_table records);
  ~store();
  store(const store&) = delete;
  store& operator=(const store&) = delete;

  // ---- instances
  /// The number of the instance with this spec; nothing when it is new; `spec_mismatch` names the differing field.
  [[nodiscard]] result<std::optional<instance_number>> find_instance(const instance_spec& spec) const;
  /// A block of every group must fit into a slab of this tier.
  [[nodiscard]] result<void> check_fits(const instance_spec& spec) const;
  /// For somebody who is about to attach.
  result<void> add_instance(instance_number number, const instance_spec& spec, memory::index_writer index,
                            memory::version_table versions, coarse_time now = 0, std::uint32_t owner = 0);
  /// `limit_exceeded` when `owner` (a uid) may not make another one; idle instances make way as far as they can at
  /// once.
  result<void> make_room(std::uint32_t owner, coarse_time now);
  /// Somebody is about to attach to it: it is not given up for the next few seconds.
  void claim_instance(instance_number number, coarse_time now) noexcept;
  /// What a client maps: read-only descriptors of index and versions. Nothing for unknown instances.
  [[nodiscard]] std::optional<std::pair<unique_fd, unique_fd>> descriptors(instance_number number) const;
  /// A second descriptor of a slab, and its segment's size in bytes. Nothing when the slab is gone.
  [[nodiscard]] std::optional<std::pair<unique_fd, std::uint64_t>> slab_descriptor(instance_number number,
                                                                                   std::uint32_t index) const;
  /// Forgets every block of the instance called `id`. Nothing when there is none. `below`: what is left to do there.
  std::optional<std::uint64_t> clear_instance(const std::string& id, coarse_time now,
                                              std::vector<removal>* below = nullptr);
  std::uint64_t clear_all(coarse_time now, std::vector<removal>* below = nullptr);
  /// The same in steps: of the instance called `id`, or of all when it is empty. Nothing when there is none of that
  /// name.
  [[nodiscard]] std::optional<std::vector<clear_work>> begin_clear(const std::string& id, std::vector<removal>& below);
  /// True: done.
  bool clear_some(clear_work& work, coarse_time now, std::uint64_t budget);
  /// For tests of engines: alters every 16-bit word of every block that is here, and has all that is in the tier below
  /// forgotten, so that no right byte is left. Returns the number of blocks.
  std::uint64_t corrupt_all(std::vector<removal>& below);

  /// Instances that came since the last call, for the tier below.
  [[nodiscard]] std::vector<instance_binding> take_bindings();
  /// Instances that were given up since the last call, for the tier below: what it holds of them it keeps.
  [[nodiscard]] std::vector<instance_number> take_given_up() { return std::exchange(given_up_, {}); }
  /// Greater than every number that an instance ever had, also one that was given up.
  [[nodiscard]] instance_number next_instance() const noexcept { return records_.next_instance(); }

  // ---- slabs
  [[nodiscard]] std::vector<slab_request> take_requests();
  void add_slab(const slab_description& what, memory::segment memory);
  /// The slab could not be made: its place is free again, and no other is asked for until `retry_after`.
  void slab_failed(const slab_description& what, coarse_time retry_after);
  /// The memory of all slabs, each of which stays where it is until it is handed out with the request to drop it.
  [[nodiscard]] std::vector<std::span<std::byte>> slab_memory() const;
  /// The keeper has forgotten the slab: its numbers may be used again.
  void slab_dropped(const slab_description& what);

  // ---- sessions
  /// `uid`: the client's user, whose sessions share what one user may hold.
  result<void> add_session(session_number number, instance_number instance, memory::session_memory memory,
                           std::uint32_t uid = 0);
  /// The client is dead, or said that it is done: everything of it is free.
  void release_session(session_number number, coarse_time now);
  /// The client's socket closed, it may be alive: takes back what it is not writing, frees its keys.
  void disconnect_session(session_number number, coarse_time now);
  /// The client is back. `held`: what it may still be writing of what earlier workers handed out; nothing: it did not
  /// know yet all that they did.
  result<void> reattach_session(session_number number, std::optional<std::span<const held_parts>> held);
  /// Recovered sessions whose batches several workers died of: nothing of theirs is carried out any more, and their
  /// memory stays theirs until release_session().
  [[nodiscard]] std::vector<session_number> suspects() const;

  // ---- work
  static constexpr std::uint64_t turn_budget = 8192;  ///< steps: one to two milliseconds
  static constexpr std::uint64_t no_budget = ~std::uint64_t{0};
  /// Carries the batch on. finished: all entries took effect or were refused, `completions` has the answers. A step is
  /// a block that is looked at; a batch that takes more than `budget` of them goes on with the next call.
  progress run(batch& work, coarse_time now, std::uint64_t budget = no_budget);
  /// Gives up waiting for memory: the entry that waits is refused with no_space, the rest goes on.
  void give_up(batch& work, coarse_time now);
  /// Expires reservations, rescans zombies, notes how old pins are. Call a few times a second.
  void tick(coarse_time now);
  /// One step of eviction ahead of need. True: more to do.
  bool evict_ahead(coarse_time now);

  // ---- the tier below
  /// Blocks to write down. They stay readable meanwhile, and keep their memory until transferred() names them.
  [[nodiscard]] std::vector<transfer> take_demotions() { return std::exchange(demotions_, {}); }
  /// What expired since the last call, for the tier below.
  [[nodiscard]] std::vector<removal> take_expired() { return std::exchange(expired_, {}); }
  /// Transfers that ended, down or up.
  void transferred(std::span<const transfer_outcome> outcomes, coarse_time now);
  /// Makes room for a block and puts it on the list of take_loads(), unless it is here or on its way.
  load_answer load(instance_number number, std::uint32_t group, const full_key& full, coarse_time now);
  [[nodiscard]] std::vector<transfer> take_loads() { return std::exchange(loads_, {}); }
  /// Blocks that left the tier below by themselves: they are not free to go any more.
  void forget_copies(std::span<const lost_block> lost);
  /// After a restart: no read of the worker before can land in a slab any more.
  void release_loading();
  /// … or nobody will ever know: such memory is not used again. Each tick() empties a slab that has some and gives it
  /// up as a whole, when nobody holds another block of it.
  void abandon_loading() noexcept { loading_is_lost_ = true; }
  [[nodiscard]] bool is_present(instance_number number, std::uint32_t group, const full_key& full) const noexcept;

  // ---- prefetches (store_prefetch.cpp)
  /// What the batches that ran said to the planner, in their order. Wishes are answered by it, later.
  [[nodiscard]] std::vector<prefetch::word> take_prefetches() { return std::exchange(prefetches_, {}); }
  /// Carries an order out; the answer of a `release` has nothing to say.
  prefetch::reply obey(const prefetch::order& order, coarse_time now);

  // ---- configuration
  void set_water_marks(double high, double low) noexcept;
  /// Moves every pool's blocks to a new policy, in the order in which the old one would evict them. Blocks the caller
  /// for some tenths of a microsecond a block. Unknown names are refused.
  result<void> set_policy(const std::string& name, coarse_time now);
  void set_groups(std::map<std::string, group_options> groups, coarse_time now);
  void set_life(life_options life) noexcept { options_.life = std::move(life); }
  void set_limits(const limit_options& limits, coarse_time now);
  void set_reserve_timeout(coarse_time timeout) noexcept { options_.reserve_timeout = timeout; }

  // ---- restart
  result<void> recover_instance(instance_number number, const instance_spec& spec, memory::shared_file index,
                                memory::version_table versions, std::uint32_t owner = 0);
  /// Slabs of instances that are unknown, or retired ones, are refused; the caller drops them.
  result<void> recover_slab(const slab_description& what, memory::segment memory);
  result<void> recover_session(session_number number, instance_number instance, memory::session_memory memory,
                               std::uint32_t uid = 0);
  /// After all recover_ calls: derives everything from the records. Returns the number of blocks that are served again.
  std::uint64_t rebuild(coarse_time now);

  [[nodiscard]] store_status status(coarse_time now) const;
  /// Blocks that wait for a pin or a writer: while there are some, tick() has work.
  [[nodiscard]] bool has_leftovers() const noexcept;

 private:
  struct account;
  struct user;
  struct slab;
  struct pool;
  struct instance;
  struct session;
  struct reservation;
  struct writer;
  struct used_chain;
  struct stored_chain;
  enum class allocation : std::uint8_t { ok, wait, no_space };
  enum class departure : std::uint8_t { evicted, removed };  ///< what is evicted may leave a ghost
  /// A block whose memory the tier below reads or fills.
  struct moving_block {
    instance* owner = nullptr;
    memory::block_ref ref;
    std::uint64_t serial = 0;
    coarse_time touched = 0;
    bool up = false;
    bool leaves = false;    ///< down: it goes when it is written; it is in no policy meanwhile
    bool unwanted = false;  ///< up: somebody stored or removed the key meanwhile
  };
  struct granted_block {
    std::uint32_t grant_version = 0;
    std::uint32_t slot = 0;
    std::uint64_t stride = 0;
  };
  /// How far eviction goes: in passing, or when nothing else is left for a request.
  enum class effort : std::uint8_t { usual, last_resort };

  // Lookups of what a client named; null or nothing when it makes no sense.
  [[nodiscard]] slab* slab_of(const instance& of, memory::block_ref ref) const noexcept;
  [[nodiscard]] slab* slab_of_record(std::uint32_t record) const noexcept;
  [[nodiscard]] memory::block_record& record_of(const slab& in, memory::block_ref ref) const noexcept;
  [[nodiscard]] static std::uint32_t ordinal_of(const slab& in, memory::block_ref ref) noexcept;
  [[nodiscard]] std::optional<memory::block_ref> find_present(const instance& in, const block_key& key,
                                                              const full_key& full, bool* collision) const noexcept;
  [[nodiscard]] pool& pool_of(const slab& in) const noexcept;

  // Operations, one entry each.
  static void drop_unfinished(session& by);
  progress run_clear(batch& work, session& by, coarse_time now);
  progress run_entry(batch& work, session& by, const memory::submission& entry, coarse_time now);
  progress run_grant(batch& work, session& by, const memory::submission& entry, coarse_time now);
  void run_commit(batch& work, session& by, const memory::submission& entry, coarse_time now);
  progress run_reserve(batch& work, session& by, const memory::submission& entry, coarse_time now);
  [[nodiscard]] static bool gave_back(const reservation& held, const session& by, const full_key& full,
                                      std::uint64_t parts);
  void join_reservation(session& by, std::uint64_t ref_bits, std::uint64_t parts, memory::completion& answer);
  allocation open_reservation(batch& work, session& by, const memory::submission& entry, coarse_time now,
                              memory::completion& answer);
  void run_finish(batch& work, session& by, const memory::submission& entry, coarse_time now);
  void refuse_finish(batch& work, session& by, const memory::submission& entry, slab* home);
  void run_release(batch& work, session& by, const memory::submission& entry);
  void run_removals(batch& work, session& by, coarse_time now);
  progress run_prefetch(batch& work, session& by, const memory::submission& entry);
  void run_prefetch_word(session& by, const memory::submission& entry);
  [[nodiscard]] static bool makes_sense(const session& by, const memory::submission& entry) noexcept;
  [[nodiscard]] std::optional<std::uint64_t> replayed(const session& by, const slab* home, memory::block_ref ref,
                                                      const memory::submission& entry) const noexcept;
  [[nodiscard]] static std::vector<std::uint64_t> blocks_written_by(const instance& in, session_number number);
  static void refuse(batch& work, const memory::submission& entry, error_code code);
  static void finish_request(batch& work, const memory::submission& entry);

  // Blocks.
  void publish(instance& in, slab& home, memory::block_ref ref, const full_key& key, coarse_time now,
               std::optional<std::uint64_t> checksum = {});
  void free_block(instance& in, slab& home, memory::block_ref ref);
  bool grant_one(session& to, pool& from, allocation& outcome, std::uint32_t more, coarse_time now);
  /// True when a block can be granted without evicting one.
  [[nodiscard]] static bool has_blank(const pool& from) noexcept;
  void forget_grant(session& by, std::uint64_t ref_bits);
  bool revoke_grant(session& of, memory::block_ref ref);
  void quarantine(instance& in, slab& home, memory::block_ref ref, std::vector<writer> writers);
  std::uint64_t acknowledge(instance& in, session_number by, std::uint64_t ref_bits, std::uint64_t parts);
  static std::uint64_t stop_writing(std::vector<writer>& writers, session_number by, std::uint64_t parts);
  [[nodiscard]] static bool is_ambiguous(const instance& in, session_number by, std::uint64_t ref_bits);
  void revoke_reservation(instance& in, std::uint64_t ref_bits);
  void drop_writer(instance& in, session_number by, std::uint64_t ref_bits, std::uint64_t parts);
  [[nodiscard]] clear_work begin_clear_of(instance& in, std::vector<removal>* below);
  std::uint64_t clear_blocks(instance& in, coarse_time now, std::vector<removal>* below);
  bool clear_slab(instance& in, clear_work& work, coarse_time now);
  std::uint64_t forget_blocks(instance& in, std::span<const memory::block_ref> refs, coarse_time now);
  void rescan_zombies(instance& in);
  static void note_oldest_pin(session& of, coarse_time now) noexcept;

  // Who may hold how much blank (store_groups.cpp).
  user& user_of(std::uint32_t uid);
  void forget_user(user& gone);
  [[nodiscard]] std::uint64_t blank_limit(std::uint64_t stride) const noexcept;
  [[nodiscard]] bool may_hold(const session& by, const pool& from) const noexcept;
  [[nodiscard]] bool may_reserve(const session& by, const pool& from) const noexcept;
  static void hold_blank(session& by, std::uint64_t stride) noexcept;
  static void let_blank(session& by, std::uint64_t stride) noexcept;
  void charge_reservation(session& by, instance& in, memory::block_ref ref, std::uint64_t stride);
  void discharge_reservation(instance& in, memory::block_ref ref, std::uint64_t stride);

  // Instance groups (store_groups.cpp).
  [[nodiscard]] const std::string& account_name(const instance_spec& spec) const;
  account& open_account(const instance_spec& spec, std::uint32_t owner);
  [[nodiscard]] std::vector<account*> all_accounts() const;
  void review_accounts(coarse_time now);
  static void move_account(instance& in, account& to);
  [[nodiscard]] bool may_keep(const account& payer, std::uint64_t stride) const noexcept;
  void trim_kept(coarse_time now);
  void trim_kept_of(slab& home, coarse_time now);
  void configure(account& payer) const;
  void run_keep(batch& work, session& by, const memory::submission& entry, coarse_time now);
  void keep_everywhere(instance& in, const full_key& key, bool kept, coarse_time now);
  bool set_kept(slab& home, memory::block_ref ref, bool kept, coarse_time now);
  void note_kept(pool& group, std::uint32_t record);
  [[nodiscard]] bool keeps(const pool& group, std::uint32_t record) const;
  void expire(coarse_time now);
  void expire_slab(slab& home, coarse_time ttl, coarse_time now);

  // Instances that nobody uses (store_life.cpp).
  void begin_idle(instance& in, coarse_time now) noexcept;
  [[nodiscard]] bool is_idle(const instance& in, coarse_time now) const noexcept;
  [[nodiscard]] std::optional<coarse_time> idle_limit(const instance& in) const noexcept;
  [[nodiscard]] bool is_crowded() const noexcept;
  [[nodiscard]] bool is_crowded(std::uint32_t owner) const noexcept;
  [[nodiscard]] std::uint32_t made_by(std::uint32_t owner) const noexcept;
  [[nodiscard]] std::optional<std::uint64_t> most_made_by(std::uint32_t owner) const noexcept;
  void give_up_idle(coarse_time now);
  void make_way(coarse_time now);
  void empty_some(instance& in, std::uint32_t& budget, coarse_time now);
  void keep_no_more(pool& group, coarse_time now);
  void give_up(instance_number number);
  void forget_account(account& payer);

  // Space (store_space.cpp).
  allocation allocate(pool& from, memory::block_ref& ref, std::uint32_t more, coarse_time now);
  allocation allocate_for_put(pool& from, memory::block_ref& ref, std::uint32_t more, coarse_time now);
  allocation find_room(pool& from, std::uint32_t more, coarse_time now);
  std::vector<bool> condemn(instance& in, std::span<const memory::block_ref> refs);
  /// A hint: only condemn() knows.
  [[nodiscard]] bool any_pinned(const instance& in, std::span<const memory::block_ref> refs);
  void restore(instance& in, slab& home, memory::block_ref ref);
  std::uint32_t evict(pool& from, std::uint32_t count, coarse_time now, effort how = effort::usual);
  std::vector<memory::block_ref> next_victims(pool& from, std::uint32_t count, std::uint32_t& looks, coarse_time now);
  std::uint32_t evict_oldest(const account* within, std::uint64_t bytes, coarse_time now);
  void mark_pins(instance& in, coarse_time now);
  bool look_again(instance& in, coarse_time now);
  void note_loose(pool& group, std::uint32_t record);
  [[nodiscard]] bool is_stuck(const slab& home, memory::block_ref ref, coarse_time now) const noexcept;
  [[nodiscard]] std::uint64_t scan_cost(const instance& in) const noexcept;
  bool evict_from_account(account& payer, pool& prefer, std::uint64_t bytes, coarse_time now);
  bool evict_last_of_account(account& payer, coarse_time now);
  allocation keep_within(account& payer, pool& from, coarse_time now);
  /// Of the lowest class of priority that has one.
  /// Pools that are set aside are passed over.
  pool* pool_with_oldest(const account* within, coarse_time now,
                         std::optional<std::uint32_t> (*victim_of)(const pool&) = oldest_of) const noexcept;
  bool revoke_idle_grants(const std::function<bool(const slab&)>& in);
  bool ask_slab(pool& into, coarse_time now);
  bool slab_fits(const pool& into) const noexcept;
  [[nodiscard]] bool make_index_room(const instance& in, std::uint64_t more) const;
  void blank_records(std::uint32_t first, std::uint32_t count);
  bool memory_is_short(coarse_time now) noexcept;
  static void renumber_slabs(instance& in) noexcept;
  bool take_idle_slab(pool& into, coarse_time now);
  bool steal_slab(pool& into, coarse_time now, effort how = effort::usual);
  bool drain(slab& victim, coarse_time now);
  bool find_drainable(slab& victim, std::vector<memory::block_ref>& present, coarse_time now);
  void move_hot_blocks(slab& from, std::vector<memory::block_ref>& refs, coarse_time now);
  void drop_slab(slab& victim);
  void drain_lost(coarse_time now);
  std::uint32_t grant_share(const session& of, const pool& from) const noexcept;
  /// As above, of what is handed out for later puts: idle blocks shall not fill a quota.
  std::uint32_t spare_share(const session& of, const pool& from) const noexcept;
  std::uint64_t usable_bytes() const noexcept;
  /// Bytes of slabs that may exist, trailers included.
  [[nodiscard]] std::uint64_t memory_limit() const noexcept;
  /// What the water marks and the capacity are compared with.
  [[nodiscard]] std::uint64_t counted_bytes() const noexcept {
    return options_.grants_in_capacity ? used_ : used_ - blank_;
  }
  [[nodiscard]] static std::uint64_t share_of(std::uint64_t bytes, double share) noexcept;
  [[nodiscard]] static std::uint32_t blocks_for(std::uint64_t bytes, const pool& of) noexcept;

  // Order: what goes next (store_order.cpp).
  progress run_touch(batch& work, session& by, const memory::submission& entry, coarse_time now);
  void gather_touched(batch& work, session& by, const memory::submission& entry);
  progress use_chain(session& by, coarse_time now);
  void use_block(pool& group, std::uint32_t record, coarse_time now);
  void note_stored(pool& group, std::uint32_t record, std::uint64_t identity, std::uint64_t parent, session& by,
                   coarse_time now);
  void place_stored(session& by, coarse_time now);
  void place_block(pool& group, std::uint32_t record, std::size_t left, coarse_time now);
  void refresh_chain(pool& group, const std::vector<chain_block>& blocks, coarse_time now);
  [[nodiscard]] bool is_same(const pool& group, const chain_block& block) const noexcept;
  std::uint32_t begin_request(pool& group, const std::vector<chain_block>& blocks, std::span<const std::uint64_t> asked,
                              coarse_time now);
  void stay_within_capacity(std::uint64_t but, coarse_time now);
  void tell_capacity(pool& group, std::size_t coming);
  /// The record of the block that goes next.
  [[nodiscard]] static std::optional<std::uint32_t> oldest_of(const pool& group) noexcept;
  [[nodiscard]] static std::optional<std::uint32_t> oldest_unwritten_of(const pool& group) noexcept;
  [[nodiscard]] std::uint64_t identity_of(const pool& group, std::uint32_t record) const noexcept;
  void enter_order(pool& group, std::uint32_t record, coarse_time now);
  void leave_order(pool& group, std::uint32_t record, departure why, coarse_time now);
  void park(pool& group, std::uint32_t record, coarse_time now);
  void touch_order(pool& group, std::uint32_t record, coarse_time now);

  // The tier below (store_lower.cpp).
  [[nodiscard]] bool is_moving(const slab& home, memory::block_ref ref) const noexcept;
  [[nodiscard]] bool in_policy(std::uint32_t record) const noexcept;
  [[nodiscard]] bool may_write(const pool& from) const noexcept;
  void write_down(slab& home, memory::block_ref ref, bool leaves);
  void write_through(slab& home, memory::block_ref ref);
  bool demote_ahead(coarse_time now);
  [[nodiscard]] std::uint64_t unwritten_excess() const noexcept;
  std::uint32_t write_oldest(pool& from, std::uint32_t count, coarse_time now);
  std::uint32_t release_blocks(pool& from, std::span<const memory::block_ref> refs, coarse_time now);
  std::uint64_t begin_moving(std::uint32_t record, moving_block what);
  [[nodiscard]] std::optional<std::pair<std::uint32_t, moving_block>> take_moving(std::uint64_t token);
  void finish_write(const moving_block& moved, std::uint32_t number, transfer_result how, coarse_time now,
                    std::map<pool*, std::vector<memory::block_ref>>& leaving);
  void finish_load(const moving_block& moved, std::uint32_t number, transfer_result how, coarse_time now);
  void abandon_load(instance& in, const block_key& key);
  void note_removal(instance& in, const block_key& key, std::vector<removal>& below);
  void forget_copy(slab& home, memory::block_ref ref);

  // Prefetches (store_prefetch.cpp).
  [[nodiscard]] prefetch::place place_of(const instance& in, std::uint32_t group, const full_key& full) const noexcept;
  void obey_load(const prefetch::order& order, prefetch::reply& into, coarse_time now);
  void obey_finish(const prefetch::order& order, prefetch::reply& into);
  void hold(const prefetch::order& by, std::uint32_t record, std::uint64_t stride);
  void let_go(std::uint64_t job);
  void let_go_all(session_number of);
  void forget_holds(std::uint32_t record, std::uint64_t stride) noexcept;
  [[nodiscard]] bool is_held(const slab& home, memory::block_ref ref) const noexcept;

  // Restart (store_recovery.cpp).
  void recover_block(instance& in, slab& home, memory::block_ref ref,
                     std::vector<std::pair<coarse_time, std::uint32_t>>& order, std::vector<bool>& indexed,
                     std::uint64_t& served);
  void recover_grants(instance& in, slab& home, memory::block_ref ref);
  static std::vector<writer> writers_in_mask(const instance& in, std::uint64_t mask, std::uint64_t parts);
  [[nodiscard]] std::vector<std::uint64_t> summarise(const instance& in, std::size_t records) const;
  void reconcile_index(instance& in, std::vector<bool>& indexed);

  instance& make_instance(instance_number number, const instance_spec& spec, memory::index_writer index,
                          memory::version_table versions, std::uint32_t owner);
  slab& adopt_slab(instance& in, const slab_description& what, memory::segment memory);

  store_options options_;
  memory::record_table records_;
  memory::crash_guard guard_;
  memory::range_allocator record_ranges_{memory::max_records};
  eviction::block_links links_;
  std::map<std::string, std::unique_ptr<account>> accounts_;
  std::map<std::uint32_t, std::unique_ptr<user>> users_;  ///< by uid
  std::uint64_t kept_bytes_ = 0;                          ///< of all accounts
  std::uint32_t trim_at_ = 0;                             ///< where the next look for kept blocks beyond a limit begins
  std::map<instance_number, std::unique_ptr<instance>> instances_;
  std::unordered_map<std::string, instance*> by_id_;
  std::unordered_map<session_number, std::unique_ptr<session>> sessions_;
  std::unordered_set<std::uint32_t> short_numbers_;  ///< of these sessions, as block records call them
  std::map<std::uint32_t, slab*> by_record_;         ///< first record -> slab
  std::vector<slab_request> requests_;
  std::uint64_t assigned_ = 0;  ///< bytes of slabs that exist or are asked for
  std::uint64_t used_ = 0;      ///< bytes of blocks that are not free
  std::uint64_t blank_ = 0;     ///< … of those, of what is not cached: granted, reserved, loading, waiting for a pin
  bool took_over_ = false;      ///< from a worker before, which may have left records of slabs that are gone
  std::optional<coarse_time> no_memory_until_;
  bool stole_without_memory_ = false;  ///< a slab was given up although none could be made; cleared when one is
  std::unordered_map<std::uint32_t, moving_block> moving_;          ///< by record
  std::unordered_map<std::uint64_t, std::uint32_t> moving_record_;  ///< by serial, which is the transfer's token
  std::uint64_t next_serial_ = 1;
  std::uint64_t writing_bytes_ = 0;
  std::uint64_t leaving_bytes_ = 0;  ///< of those, what goes when it is written
  std::uint64_t loading_bytes_ = 0;
  std::uint64_t parked_bytes_ = 0;
  std::vector<transfer> demotions_;
  std::vector<transfer> loads_;
  std::vector<removal> expired_;
  std::uint32_t expiry_at_ = 0;  ///< where the next look for blocks that expired begins
  std::vector<instance_number> unbound_;
  std::vector<instance_number> given_up_;
  std::unordered_map<std::uint32_t, std::uint32_t> made_by_;  ///< uid -> instances that there are
  std::unique_ptr<stored_chain> storing_;
  std::vector<prefetch::word> prefetches_;
  struct job_holds {
    session_number by = 0;
    std::vector<std::uint32_t> records;
  };
  std::unordered_map<std::uint64_t, job_holds> job_holds_;                  ///< by job
  std::unordered_map<std::uint32_t, std::vector<std::uint64_t>> held_for_;  ///< record -> jobs
  std::uint64_t held_bytes_ = 0;
  std::vector<std::pair<instance*, memory::block_ref>> recovered_loading_;  ///< a dead worker's reads may still land
  bool loading_is_lost_ = false;                                            ///< … and will not be known to have ended
  coarse_time forced_at_ = 0;
  unsigned forced_looks_ = 0;
  std::uint64_t forced_cost_ = 0;
  std::uint64_t spent_ = 0;  ///< steps of the run under way
  std::uint64_t budget_ = no_budget;
  store_counters counters_;
};

}  // namespace cenote::dram
