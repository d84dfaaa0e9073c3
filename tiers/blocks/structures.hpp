// What a store is made of: slabs, pools, instances, sessions. Plain structures.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/device_spec.hpp"
#include "core/instance_identity.hpp"
#include "memory/block_record.hpp"
#include "memory/index.hpp"
#include "memory/lookup_counts.hpp"
#include "memory/slab_mapping.hpp"
#include "memory/version_table.hpp"
#include "tiers/blocks/account.hpp"
#include "tiers/blocks/bounded_blocks.hpp"
#include "tiers/blocks/chain.hpp"
#include "tiers/blocks/granted_blocks.hpp"
#include "tiers/blocks/published.hpp"
#include "tiers/blocks/session_lookups.hpp"
#include "tiers/blocks/slab.hpp"
#include "tiers/blocks/types.hpp"
#include "tiers/eviction/policy.hpp"
#include "tiers/prefetch/commands.hpp"

namespace cenote::blocks {

struct instance;
struct pool;
struct session;

struct slab {
  slab_description what;
  memory::slab_mapping memory;
  instance* owner = nullptr;
  std::uint32_t present = 0;
  std::uint64_t touch_sum =
      0;  ///< of its present blocks: by their mean age a pool that needs memory chooses a slab to take
  std::uint32_t stuck = 0;               ///< the block that held it last: as long as it does, nothing else is looked at
  std::uint32_t stuck_grant = 0;         ///< … if it was blank in a session's hands: which grant
  std::vector<std::uint32_t> pin_marks;  ///< a block: the look at all pins that last saw it pinned; empty: none did

  [[nodiscard]] std::byte* block(memory::block_ref ref) const noexcept {
    return memory.data() + what.stride * ref.block();
  }
};

/// The blocks of one group of one instance.
struct pool {
  instance* owner = nullptr;
  std::uint32_t group = 0;
  std::uint64_t stride = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t all_parts = 0;
  std::uint32_t blocks_per_slab = 0;
  std::vector<slab*> slabs;
  std::vector<memory::block_ref> free;  ///< a stack; ascending numbers come out in a row
  std::unique_ptr<eviction::policy> policy;
  std::unique_ptr<eviction::policy> written_back;  ///< the oldest blocks that have a copy below: these go first
  bounded_order bounded;                           ///< of the policy's blocks, those of which there may be too many
  std::uint32_t told = 0;                          ///< the capacity that the policy knows of
  std::uint64_t watched_room = 0;                  ///< watched_request::room; 0: its requests are not watched
  std::uint32_t slabs_asked = 0;
  std::uint32_t kept = 0;      ///< present blocks that stay, and are in no policy
  std::uint32_t leaving = 0;   ///< present blocks that are on their way down and in no policy
  std::uint32_t pinned = 0;    ///< evictable blocks that the last look at all pins found pinned
  boot_time aside_until{};     ///< all that eviction looked at was held: until then it turns to other pools
  boot_time vain_at{};         ///< everything was looked at and was held; 0: none was, or something was let go since
  std::size_t kept_until = 0;  ///< slabs looked through for kept blocks, while nobody uses the instance
};

/// Whether the requests for the pool's blocks are handed on.
[[nodiscard]] inline bool is_watched(const pool& group, request_watch watch) noexcept {
  return group.watched_room != 0 && (watch == request_watch::all || group.policy->follows_requests());
}

/// Who may be writing a block: an entry a hand-out. A part of a hand-out ends with one word of its session, or with it.
struct writer {
  session_number by = 0;
  std::uint64_t parts = 0;
  bool guessed = false;  ///< handed out by an earlier worker: at most these parts, its session knows which
};

/// A key that is bound to a block which is not whole yet.
struct reservation {
  block_key key;
  full_key full;
  std::uint32_t group = 0;
  std::uint64_t reserved = 0;  ///< parts that someone writes or has written
  std::uint64_t written = 0;
  std::vector<writer> writers{};  ///< of parts that are not written yet
  boot_time deadline{};
  std::vector<writer> given_back{};  ///< not handed to the same session again under this grant version
};

struct instance {
  instance_number number = 0;
  std::uint32_t owner = 0;  ///< the uid of who made it
  instance_spec spec;
  instance_identity identity;                     ///< of the spec
  std::shared_ptr<const instance_share> share{};  ///< of a device: what it is of a whole instance
  account* payer = nullptr;
  memory::index_writer index;
  memory::version_table versions;
  memory::range_allocator version_ranges{memory::max_version_entries};
  std::uint32_t next_slab = 1;
  std::unordered_map<std::uint32_t, std::unique_ptr<slab>> slabs;
  std::vector<std::unique_ptr<pool>> pools;  ///< by group
  std::vector<session*> sessions;
  std::unordered_map<std::uint64_t, reservation> reservations;  ///< by block
  std::unordered_map<block_key, std::uint64_t, block_key_hash> reserved_keys;
  std::unordered_map<std::uint64_t, std::vector<writer>> quarantined;  ///< block -> who may still write it
  /// Who pays for a block that is being written part by part, or set aside: who reserved it.
  struct charge {
    session_number by = 0;
    user* owner = nullptr;
    blank_share* group = nullptr;  ///< of the owner's blank bytes
  };
  std::unordered_map<std::uint64_t, charge> charges;  ///< by block
  std::vector<memory::block_ref> zombies;
  std::size_t writing = 0;     ///< blocks on their way to a tier below
  std::uint32_t pin_look = 0;  ///< the number of the last look at all pins; see slab::pin_marks
  boot_time pins_seen{};       ///< … when it was
  boot_time zombies_seen{};
  std::shared_ptr<const char> clears = std::make_shared<const char>('c');  ///< as many owners more as clears under way
  std::unordered_map<block_key, std::uint32_t, block_key_hash> loading;    ///< key -> record
  boot_time claimed_until{};                                               ///< somebody is about to attach
  bool makes_way = false;                                                  ///< for others, before its time
  boot_time checks_from{};                   ///< see sum_checks: until then none of its copies is checked
  memory::lookup_counts past_lookups{};      ///< of sessions that are over
  memory::lookup_counts credited_lookups{};  ///< of all, what an earlier payer has in its past hits

  /// No block is anything but free, and no slab is on its way.
  [[nodiscard]] bool is_blank() const noexcept {
    return std::ranges::all_of(pools, [](const auto& group) {
      std::size_t blocks = 0;
      for (const slab* home : group->slabs) blocks += home->what.count;
      return group->slabs_asked == 0 && group->free.size() == blocks;
    });
  }
  [[nodiscard]] bool is_clearing() const noexcept { return clears.use_count() > 1; }

  instance(memory::index_writer writer, memory::version_table table) noexcept
      : index(std::move(writer)), versions(std::move(table)) {}
};

struct session {
  session_number number = 0;
  instance* of = nullptr;
  memory::session_memory memory;
  granted_blocks granted;
  std::vector<std::uint32_t> empty_slots;  ///< of the grant table
  bool connected = true;
  std::uint64_t watched_slot = 0;  ///< a pin slot that has held `watched_pin` since `watched_since`
  std::uint64_t watched_pin = 0;   ///< 0: no pin was held when we last looked
  boot_time watched_since{};
  bool recovered = false;          ///< from another worker: its last submissions may arrive again
  bool suspect = false;            ///< workers died of its batches: none is carried out any more
  bool is_ended = false;           ///< too many of its blocks were wrong: its batches are refused
  std::uint32_t wrong_blocks = 0;  ///< see sum_checks
  std::uint32_t wrong_lately = 0;  ///< … of those, since `wrong_since`
  boot_time wrong_since{};
  open_chains chains;
  user* owner = nullptr;
  blank_share* group = nullptr;  ///< of the owner's blank bytes, those of its instance group
  std::uint64_t blank = 0;       ///< bytes of blocks that are granted to it, or that it reserved
  used_chain touching;           ///< of the request under way
  prefetch::request gathering;   ///< of the request under way
  publication publishing;        ///< … if it publishes
  session_lookups lookups{};

  [[nodiscard]] std::uint64_t mask() const noexcept { return std::uint64_t{1} << (number % 64); }
  /// What block records call it.
  [[nodiscard]] std::uint32_t short_number() const noexcept { return static_cast<std::uint32_t>(number); }
};

}  // namespace cenote::blocks
