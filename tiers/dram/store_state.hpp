// The parts of the DRAM store, for its own source files.
#pragma once

#include <algorithm>

#include "tiers/dram/open_chains.hpp"
#include "tiers/dram/store.hpp"

namespace cenote::dram {

/// Who pays: an instance group; or one user of those that share an account, and the account with him.
struct store::account {
  std::string name;
  account* parent = nullptr;                                ///< pays the same, and has bounds of its own
  std::map<std::uint32_t, std::unique_ptr<account>> users;  ///< by uid: those whose parent it is
  group_options given;
  std::uint64_t used = 0;
  std::uint64_t kept = 0;      ///< … of that, of blocks that stay
  std::uint64_t reserved = 0;  ///< … of that, of blocks that are being written part by part, or set aside

  void pay(std::uint64_t account::*what, std::uint64_t bytes) noexcept {
    for (account* each = this; each != nullptr; each = each->parent) each->*what += bytes;
  }
  void repay(std::uint64_t account::*what, std::uint64_t bytes) noexcept {
    for (account* each = this; each != nullptr; each = each->parent) each->*what -= bytes;
  }
  /// True for itself, and for all of its parents.
  [[nodiscard]] bool pays_into(const account& whom) const noexcept {
    return this == &whom || (parent != nullptr && parent->pays_into(whom));
  }
  [[nodiscard]] bool has_room(std::uint64_t bytes) const noexcept {
    return (given.quota == 0 || used + bytes <= given.quota) && (parent == nullptr || parent->has_room(bytes));
  }
  [[nodiscard]] bool may_keep(std::uint64_t bytes) const noexcept {
    return kept + bytes <= given.keep_quota && (parent == nullptr || parent->may_keep(bytes));
  }
  [[nodiscard]] bool may_reserve(std::uint64_t bytes, std::uint64_t most) const noexcept {
    return reserved + bytes <= most && (parent == nullptr || parent->may_reserve(bytes, most));
  }
};

/// All sessions of one uid.
struct store::user {
  std::uint32_t uid = 0;
  std::uint64_t blank = 0;  ///< bytes that they hold blank
  std::uint32_t sessions = 0;
};

struct store::slab {
  slab_description what;
  memory::segment memory;
  instance* owner = nullptr;
  std::uint32_t present = 0;
  std::uint64_t touch_sum = 0;           ///< of its present blocks: their mean age is what a thief looks at
  std::uint32_t stuck = 0;               ///< the block that held it last: as long as it does, nothing else is looked at
  std::uint32_t stuck_grant = 0;         ///< … if it was blank in a session's hands: which grant
  std::vector<std::uint32_t> pin_marks;  ///< a block: the look at all pins that last saw it pinned; empty: none did

  [[nodiscard]] std::byte* block(memory::block_ref ref) const noexcept {
    return memory.data() + what.stride * ref.block();
  }
};

/// The blocks of one group of one instance.
struct store::pool {
  instance* owner = nullptr;
  std::uint32_t group = 0;
  std::uint64_t stride = 0;
  std::uint64_t block_bytes = 0;
  std::uint64_t all_parts = 0;
  std::uint32_t blocks_per_slab = 0;
  std::vector<slab*> slabs;
  std::vector<memory::block_ref> free;  ///< a stack; ascending numbers come out in a row
  std::unique_ptr<eviction::policy> policy;
  std::unique_ptr<eviction::policy> parked;  ///< the oldest blocks that have a copy below: these go first
  std::uint32_t told = 0;                    ///< the capacity that the policy knows of
  std::uint32_t slabs_asked = 0;
  std::uint32_t kept = 0;       ///< present blocks that stay, and are in no policy
  std::uint32_t leaving = 0;    ///< present blocks that are on their way down and in no policy
  std::uint32_t pinned = 0;     ///< evictable blocks that the last look at all pins found pinned
  coarse_time aside_until = 0;  ///< all that eviction looked at was held: until then it turns to other pools
  coarse_time vain_at = 0;      ///< everything was looked at and was held; 0: none was, or something was let go since
  std::size_t kept_until = 0;   ///< slabs looked through for kept blocks, while nobody uses the instance
};

/// Who may be writing a block: an entry a hand-out. A part of a hand-out ends with one word of its session, or with it.
struct store::writer {
  session_number by = 0;
  std::uint64_t parts = 0;
  bool guessed = false;  ///< handed out by an earlier worker: at most these parts, its session knows which
};

/// A key that is bound to a block which is not whole yet.
struct store::reservation {
  block_key key;
  full_key full;
  std::uint32_t group = 0;
  std::uint64_t reserved = 0;  ///< parts that someone writes or has written
  std::uint64_t written = 0;
  std::vector<writer> writers{};  ///< of parts that are not written yet
  coarse_time deadline = 0;
  std::vector<writer> given_back{};  ///< not handed to the same session again under this grant version
};

/// A chain as a session uses it, gathered from several ring entries.
struct store::used_chain {
  pool* group = nullptr;  ///< null: between two chains
  std::uint32_t request = 0;
  bool sound = true;                 ///< all entries named one group
  std::vector<chain_block> blocks;   ///< head to tail
  std::vector<std::uint64_t> asked;  ///< what the session asked for behind them
  std::uint64_t looked = 0;          ///< blocks that were named, here or not
  bool begun = false;                ///< the policy knows of it, and `left` blocks from the head are still to be used
  std::size_t left = 0;
  std::uint32_t standing = 0;

  void clear() noexcept {
    group = nullptr;
    sound = true;
    begun = false;
    looked = left = standing = 0;
    blocks.clear();
    asked.clear();
    if (blocks.capacity() > most_spare) blocks = {};  // a session keeps little for its next chain
  }
  static constexpr std::size_t most_spare = 4096;
};

/// Blocks that a request stored and that are in no policy yet, head to tail.
struct store::stored_chain {
  pool* group = nullptr;
  std::uint64_t first = 0, last = 0;  ///< identities, also of blocks that were there already
  std::uint64_t parent = 0;           ///< of the block before them, if the session said so
  std::vector<chain_block> blocks;

  void clear() noexcept {
    group = nullptr;
    first = last = parent = 0;
    blocks.clear();
  }
};

struct store::instance {
  instance_number number = 0;
  std::uint32_t owner = 0;  ///< the uid of who made it
  instance_spec spec;
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
  };
  std::unordered_map<std::uint64_t, charge> charges;  ///< by block
  std::vector<memory::block_ref> zombies;
  std::uint32_t pin_look = 0;  ///< the number of the last look at all pins; see slab::pin_marks
  coarse_time pins_seen = 0;   ///< … when it was
  coarse_time zombies_seen = 0;
  std::shared_ptr<const char> clears = std::make_shared<const char>('c');  ///< as many owners more as clears under way
  std::unordered_map<block_key, std::uint32_t, block_key_hash> loading;    ///< key -> record
  coarse_time claimed_until = 0;                                           ///< somebody is about to attach
  bool makes_way = false;                                                  ///< for others, before its time

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

struct store::session {
  session_number number = 0;
  instance* of = nullptr;
  memory::session_memory memory;
  std::unordered_map<std::uint64_t, granted_block> granted;  ///< blank blocks, by block
  std::vector<std::uint32_t> empty_slots;                    ///< of the grant table
  bool connected = true;
  std::uint64_t watched_slot = 0;  ///< a pin slot that has held `watched_pin` since `watched_since`
  std::uint64_t watched_pin = 0;   ///< 0: no pin was held when we last looked
  coarse_time watched_since = 0;
  bool recovered = false;  ///< from another worker: its last submissions may arrive again
  bool suspect = false;    ///< workers died of its batches: none is carried out any more
  open_chains chains;
  user* owner = nullptr;
  std::uint64_t blank = 0;   ///< bytes of blocks that are granted to it, or that it reserved
  used_chain touching;       ///< of the request under way
  prefetch::word gathering;  ///< of the request under way

  [[nodiscard]] std::uint64_t mask() const noexcept { return std::uint64_t{1} << (number % 64); }
  /// What block records call it.
  [[nodiscard]] std::uint32_t short_number() const noexcept { return static_cast<std::uint32_t>(number); }
};

inline store::pool& store::pool_of(const slab& in) const noexcept {
  return *in.owner->pools[in.what.group];
}

inline memory::block_record& store::record_of(const slab& in, memory::block_ref ref) const noexcept {
  return records_[in.what.first_record + ref.block()];
}

inline std::uint32_t store::ordinal_of(const slab& in, memory::block_ref ref) noexcept {
  return in.what.first_version + ref.block();
}

}  // namespace cenote::dram
