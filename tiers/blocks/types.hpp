// What a store of blocks is given, asked and answers: plain values, for those who talk to one.
#pragma once

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/block_key.hpp"
#include "core/choices.hpp"
#include "core/device_spec.hpp"
#include "core/error.hpp"
#include "core/instance_spec.hpp"
#include "core/time_types.hpp"
#include "memory/lookup_counts.hpp"
#include "memory/session_memory.hpp"
#include "memory/shared_file.hpp"
#include "tiers/block_changes/block_changes.hpp"
#include "tiers/blocks/counters.hpp"
#include "tiers/blocks/watched_requests.hpp"
#include "tiers/eviction/auto_status.hpp"
#include "tiers/transfer.hpp"

namespace cenote::blocks {

using instance_number = std::uint32_t;
using session_number = std::uint64_t;
using cenote::ingest;
using cenote::priority;

/// The tiers below a block tier, in their order: 0 is the nearest.
using cenote::edge_number;
using cenote::max_edges;
/// Some of the tiers below.
using edge_set = std::bitset<max_edges>;

/// Blocks that a tier below is offered once more when it is back.
enum class late_offers : std::uint8_t {
  none,
  missed,   ///< those that came while it was away: the tier refuses what may have been removed there since they came
  lacking,  ///< all that it lacks: for places alone whose removals reach this node, too
};

/// What a block tier does with one of the tiers below it.
struct edge_options {
  blocks::ingest ingest = blocks::ingest::evicted;
  std::uint32_t hot_accesses = 2;
  bool keep_copy = true;           ///< the tier below keeps what it gave
  std::uint64_t write_window = 0;  ///< bytes on their way down at once
  std::uint64_t read_window = 0;   ///< … up
  double write_ahead = 0;  ///< share of the capacity whose oldest blocks are kept with a copy below, ready to go
  bool hinted =
      true;  ///< it says behind the index what it holds, as one tier may; else it is asked for what is nowhere
  bool may_forget = false;  ///< it does not say what it loses: a block that is to go is offered to it once more
  blocks::late_offers late_offers = blocks::late_offers::none;
  bool names_arrival = false;  ///< what it gives was to be had for all when it was asked for, as at servers alone
};

/// What an instance group is given.
struct group_options {
  std::uint64_t quota = 0;  ///< bytes of DRAM; 0: no limit
  blocks::priority priority =
      blocks::priority::normal;  ///< no block goes while a group of a lower class has one that can
  tenths ttl = tenths(0);        ///< blocks that nobody used for so long are forgotten; 0: never
  std::uint64_t keep_quota = 0;  ///< bytes that kept blocks may take; 0: a tenth of the capacity
  std::vector<full_key> keep{};  ///< blocks that stay when they come
};

/// When an instance without a session is given up; see idle_instances.hpp.
struct life_options {
  tenths idle = tenths(0);   ///< after so long; 0: never
  tenths empty = tenths(0);  ///< without a block it goes after so long; 0: as any other
  tenths claim =
      std::chrono::seconds(10);  ///< an instance that somebody is about to attach to is left alone for so long
  std::uint32_t instances = 0;   ///< there are never more; idle ones go early from seven eighths on; 0: no limit
  std::uint32_t per_owner = 0;   ///< the same of the instances that one user made; who leaves as many to others
  std::vector<std::uint32_t> trusted{};  ///< … but for these users, who leave what they like
  std::uint32_t comfortable = 0;         ///< as `instances`, but there may be more: what descriptors suffice for
};

/// What one tenant may take from the others; shares are of the capacity.
struct limit_options {
  /// Bytes of blank blocks (granted, reserved, or set aside since their writers are unknown) in the hands of one
  /// session or of one user, of a group twice as much. 64 blocks are always allowed.
  double reserve_share = 0.25;
  double keep_share = 0.5;        ///< bytes of kept blocks, of all groups together
  double pin_share = 0.5;         ///< bytes that readers of one user's instances pin, while others are attached
  std::uint64_t group_quota = 0;  ///< bytes: quota of accounts that `groups` gives none; 0: none
  bool open_groups = false;       ///< groups that `groups` does not name have accounts of their own
  std::uint64_t user_quota = 0;   ///< bytes that the instances of one user of the account `default` hold; 0: no limit
  double user_keep_share = 0.5;   ///< of what that account may keep: kept blocks of one user's instances
};

/// Sessions for which a device may go on writing after their worker's death, by the low halves of their numbers.
struct lingering_writers {
  std::uint32_t first = 0, count = 0;
  tenths time = tenths(0);  ///< what they had reserved is set aside for so long by the next worker

  [[nodiscard]] bool has(std::uint32_t number) const noexcept { return number >= first && number - first < count; }
};

/// Requests for the first group of an instance, of at most most_watched, that store::watched() has.
enum class request_watch : std::uint8_t {
  none,
  followed,  ///< of policies that follow requests: the identities are made for these anyway
  all,       ///< of any policy: some make a batch a sixth longer
};

struct store_options {
  std::uint64_t capacity = 0;    ///< bytes of all slabs together, trailers included
  double high_water = 0.97;      ///< of the capacity: eviction ahead of need starts above
  double low_water = 0.94;       ///< … and ends below
  std::uint64_t slab_bytes = 0;  ///< 0: by capacity
  std::uint32_t max_grants = 1024;
  bool grants_in_capacity = true;  ///< false: only cached blocks count, and memory may exceed the capacity by an eighth
  tenths reserve_timeout = std::chrono::seconds(30);
  bool checksum_at_commit = false;
  bool bytes_are_host = true;  ///< false: of a device, which the store never reads nor writes
  std::string policy = "lru";
  std::map<std::string, group_options> groups;  ///< by name; the others share the account called `default`
  limit_options limits;
  std::vector<edge_options> edges{};  ///< the tiers below, at most max_edges
  double copies_share = 1;            ///< of the capacity: beyond that, copies of blocks that other nodes have go first
  double hosted_share = 1;            ///< … blocks that other nodes store here
  std::uint64_t hold_bytes = 0;       ///< the most that prefetches may keep from eviction; 0: half of the capacity
  std::uint64_t first_transfer = 1;  ///< number of the first transfer to or from the tier below; for tests of late ones
  life_options life;
  std::size_t most_changes = block_changes::usual_waiting;  ///< that may wait for a reader of them

  bool has_listeners = false;  ///< also others than tiers below are told of what is removed
  lingering_writers lingering;
  request_watch watch = request_watch::none;

  [[nodiscard]] bool has_lower() const noexcept { return !edges.empty(); }
  [[nodiscard]] bool tells_removals() const noexcept { return has_lower() || has_listeners; }
};

/// Keys that were removed, for the tier below.
struct removal {
  instance_number instance = 0;
  bool all = false;             ///< the whole instance; of number 0: see `id`
  std::vector<block_key> keys;  ///< unless all
  std::string id{};             ///< number 0: of an instance that is not here; empty: all that the tier below holds
  bool on_its_way = false;      ///< another node removes it everywhere: here only what is on its way there or back goes
};

/// What a tier says that has never heard of a removal's instance.
[[nodiscard]] inline std::unexpected<error> no_instance(const std::string& id) {
  return fail(error_code::invalid_argument, "no instance `" + id + "`; `cenote status` lists them");
}

/// … a tier that has no instances at all: success, unless all of the removals are known by name alone.
[[nodiscard]] inline result<void> none_of_them(const std::vector<removal>& removals) {
  const auto is_by_name = [](const removal& each) { return each.instance == 0 && !each.id.empty(); };
  if (removals.empty() || !std::ranges::all_of(removals, is_by_name)) return {};
  return no_instance(removals.front().id);
}

/// A session of which too many blocks did not have the bytes of their sums.
struct wrong_session {
  session_number number = 0;
  std::uint32_t blocks = 0;
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
  bool is_guest = false;  ///< of another node: tiers outside this machine have no part in it
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

/// The answers to requests of the batch that remove something, and were carried out, become `outcome`. Returns how
/// many.
std::uint64_t answer_removals(batch& finished, error_code outcome);

inline constexpr std::uint64_t turn_budget = 8192;  ///< steps of a batch's turn: one to two milliseconds
inline constexpr std::uint64_t no_budget = ~std::uint64_t{0};

enum class progress : std::uint8_t {
  finished,
  waits_for_memory,
  more,  ///< the budget is used up
};

/// What the tier below needs of an instance: its hints lie behind the index.
struct instance_binding {
  instance_number number = 0;
  instance_spec spec;
  std::shared_ptr<const instance_share> share{};  ///< of a device: what it is of a whole instance
  memory::shared_file index;
};

/// Of its sessions, those that are over, too, since the worker began to serve them.
struct instance_status : memory::lookup_counts {
  std::string id, group;
  std::string account;  ///< who pays: the group, or `default`
  std::uint64_t present = 0, free = 0, slabs = 0, bytes = 0, sessions = 0, index_slots = 0, index_entries = 0;
  std::uint64_t zombie = 0, quarantined = 0, pending = 0, loading = 0;
  std::uint64_t pinned = 0;  ///< pins of its sessions
  std::uint64_t match_tokens = 0, match_resident_tokens = 0, match_lower_tokens = 0;
  std::uint64_t read_tokens = 0, read_resident_tokens = 0;
  std::optional<tenths> idle;                   ///< for how long it has had no session; nothing while it has one
  std::optional<tenths> given_up;               ///< in how long that ends it; nothing: never, or it has a session
  std::optional<eviction::auto_status> chosen;  ///< of the first group, where the policy is `auto`
  std::optional<curve_status> curve;            ///< … where it is watched; points come later, from others
};
struct session_status : memory::lookup_counts {
  session_number number = 0;
  std::string instance;
  std::uint64_t pins = 0, grants = 0, writing = 0;
  std::uint64_t wrong = 0;        ///< blocks whose bytes were not those of their sums
  tenths oldest_pin = tenths(0);  ///< age; at least that old
  bool connected = true;
  bool is_ended = false;  ///< by the node
};
/// Of calls of a group's sessions that ask what is there.
struct group_hits {
  std::uint64_t lookups = 0, hits = 0, lower_hits = 0;  ///< blocks, see memory::lookup_counts
  std::uint64_t lookup_tokens = 0, hit_tokens = 0, lower_hit_tokens = 0;
};
struct account_status : group_hits {
  std::string name;
  std::uint64_t quota = 0, used = 0, kept = 0;
  std::uint64_t reserved = 0;  ///< bytes of blocks that are being written part by part, or set aside
  std::uint64_t wrong = 0;     ///< blocks whose bytes were not those of their sums
  blocks::priority priority = blocks::priority::normal;
  std::optional<std::uint32_t> uid{};  ///< of the user, where it is one of several who share an account
};
struct store_status {
  std::uint64_t capacity = 0, assigned = 0, used = 0, slabs = 0;
  std::uint64_t cached = 0;  ///< bytes of blocks that are hits
  std::uint64_t present = 0, granted = 0, pending = 0, quarantined = 0, zombie = 0, free = 0, loading = 0;
  std::uint64_t writing_bytes = 0, loading_bytes = 0;  ///< on their way to and from the tier below
  std::uint64_t held_bytes = 0;                        ///< kept from eviction for whoever prefetched them
  std::uint64_t copy_bytes = 0, hosted_bytes = 0;      ///< of evictable blocks, by what they are to the cluster
  std::uint64_t published = 0, published_keys = 0, followers = 0;  ///< see published.hpp
  store_counters counters;
  std::vector<instance_status> instances;
  std::vector<session_status> sessions;
  std::vector<account_status> accounts;
  std::vector<account_status> users;  ///< who share an account, within it
};

}  // namespace cenote::blocks
