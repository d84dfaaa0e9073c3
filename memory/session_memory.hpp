// The memory that one session shares with the node: rings, grants, pin slots (hazard pointers, Michael 2004).
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/block_key.hpp"
#include "core/error.hpp"
#include "core/machine_choice.hpp"
#include "memory/block_ref.hpp"
#include "memory/lookup_counts.hpp"
#include "memory/segment.hpp"

namespace cenote::memory {

// Client and worker both write here, so the worker trusts nothing in it: it copies each value out once and then checks
// the copy. Layout (fixed sizes but for the pin slots):
//
//   0        4096          4096+256K        +256K            +16K         …
//   | header | submissions | completions    | grant slots    | pin slots  |
//             2048 x 128 B   8192 x 32 B      1024 x 16 B      pins x 8 B

/// What a client asks for, and what answers it. `last`: one `done` at the last entry of a request.
enum class operation : std::uint8_t {
  grant = 1,      ///< hand `argument` more blank blocks of `group` to me -> done
  commit = 2,     ///< granted `block` now holds `key` -> last
  reserve = 3,    ///< bind a blank block to `key`; `argument`: mask of the parts I write -> a result a key, then done
  finish = 4,     ///< parts `argument` of reserved `block` are written -> last
  release = 5,    ///< I write parts `argument` of `block` no more (0: all, if one answer gave me all of them) -> last
  remove = 6,     ///< forget `key` -> last
  clear = 7,      ///< forget the whole instance -> done
  touch = 8,      ///< blocks that were read, see touch_runs; a request is a chain -> nothing
  barrier = 9,    ///< -> done, when all before it is
  prefetch = 10,  ///< bring `key` up; a request is a chain, its last entry has the terms -> done, later
  stop_prefetch = 11,  ///< the engine is ready to compute: see the policy of chain `grant_version` -> done
  end_prefetch = 12,   ///< chain `grant_version` is not wanted any more, nor held -> done
  asked = 13,          ///< goes on with a touch: what was asked for and is missing, see asked_ids -> nothing
  keep = 14,           ///< `key` stays in DRAM from now on; `argument` 0: no more -> last
  locate = 15,  ///< how much of a chain is in any tier, those asked that have no hints; a request is a chain, its last
                ///< entry has the nanoseconds to wait for them as `argument` -> done, later, with the length
  // Of groups of ranks, see group_terms.hpp: for the consensus actor, not for the block tier. Each is a request.
  join = 16,   ///< I am a rank of the group called `key` -> done, later, when all ranks are there
  agree = 17,  ///< my length for a question; -> done, later, with what all ranks get
  leave = 18,  ///< I am no rank of it any more -> done
  // Of requests that are handed over to other nodes.
  publish = 19,  ///< the first entry's `key` is a request's name, `argument` the place of the next one's key in it or
                 ///< no_place, `want` 1: it ends with these; the others' keys are its blocks' -> done: its keys now
  follow = 20,   ///< bring up what `key`, a request's name, has at the node that the next entry's `key` names, for
                 ///< `argument` ns; the last entry's `grant_version` is the chain. Without a name: goes on with that
                 ///< chain from place `argument` -> `handed` entries, then done, later: see handed_keys
  check = 21,    ///< another node got wrong bytes of `key`; not of clients -> last
};

/// One submission, 128 bytes. A batch is a run of entries with one request number; the last has flag_last.
struct submission {
  operation op{};
  std::uint8_t flags = 0;
  std::uint16_t group = 0;
  std::uint32_t request = 0;  ///< chosen by the client; completions carry it
  std::uint32_t index = 0;    ///< position in the batch
  std::uint32_t grant_version = 0;
  std::uint64_t block = 0;  ///< block_ref
  std::uint64_t argument = 0;
  std::uint64_t want = 0;  ///< commit: blank blocks to hand out in exchange (argument: spare_grants)
  std::uint8_t key_size = 0;
  std::uint8_t spare[7]{};
  std::byte key[max_key_bytes]{};
  /// Commit: identity of the key before it in its chain, as far as the client knows; 0: not. Finish, with flag_arrival:
  /// when the block came to this node, a boot_time.
  std::uint64_t parent = 0;
  std::uint64_t detail =
      0;  ///< commit, finish of all parts, with flag_checksum: XXH3-64 of the block; prefetch: see prefetch_terms

  static constexpr std::uint8_t flag_last = 1;
  static constexpr std::uint8_t flag_checksum = 2;
  static constexpr std::uint8_t flag_reduced = 4;   ///< remove: `key` is an index key, high word first
  static constexpr std::uint8_t flag_arrival = 8;   ///< finish: the block comes from a device, see `parent`
  static constexpr std::uint64_t spare_grants = 1;  ///< `argument` of a commit: hand out only what is free anyway
  static constexpr std::uint64_t no_place = ~std::uint64_t{0};
};
static_assert(sizeof(submission) == 128);

/// What `touch` carries in place of a key: runs of blocks that were read, from the chain's head to its tail.
/// A run is block_ref bits (40) | length (24); the last run's end is the chain's tip.
struct touch_runs {
  static constexpr std::size_t capacity = 8;
  std::uint64_t run[capacity];
  static constexpr std::uint64_t make(block_ref first, std::uint64_t length) noexcept {
    return (first.bits << 24) | length;
  }
  static constexpr block_ref first(std::uint64_t run) noexcept { return block_ref::from_bits(run >> 24); }
  static constexpr std::uint64_t length(std::uint64_t run) noexcept { return run & 0xffffff; }
};
static_assert(sizeof(touch_runs) == max_key_bytes);

/// What `asked` carries in place of a key: identities (the low word of the index key) of the keys that come after the
/// blocks of the touch in the same batch. All of them up to `most`; of more than that the first ones and the last.
struct asked_ids {
  static constexpr std::size_t capacity = 8;
  static constexpr std::size_t most = 512;
  std::uint64_t id[capacity];
};
static_assert(sizeof(asked_ids) == max_key_bytes);

enum class completion_kind : std::uint16_t {
  done = 1,      ///< `value`: how many took effect; `code`, `index`: the first refusal of the batch and where; of a
                 ///< prefetch: see prefetch_outcome
  reserved = 2,  ///< parts `value` of `block`, `grant_version`: yours to write
  present = 3,   ///< reserve: the key is complete already; do not write
  pending = 4,   ///< reserve: another session writes these parts; do not write
  refused = 5,   ///< reserve: `code` says why
  text = 6,      ///< a piece of why the request is refused, see refusal_text; `done` follows
  handed = 7,    ///< follow: a piece of a key
};

/// One completion, 32 bytes.
struct completion {
  std::uint32_t request = 0;
  completion_kind kind{};
  std::uint16_t code = 0;  ///< error_code
  std::uint32_t index = 0;
  std::uint32_t grant_version = 0;
  std::uint64_t block = 0;
  std::uint64_t value = 0;
};
static_assert(sizeof(completion) == 32);

/// How keys of a chain that is followed come: each in pieces of 16 bytes, `block` and then `value` of a completion
/// whose `index` counts the pieces of an answer. Its `done` has as `value` how many keys there are, as `grant_version`
/// their width in bytes, and as `block` 0 while the chain goes on; else it is over, and that is its length and one.
struct handed_keys {
  static constexpr std::size_t most = 128;  ///< an answer
  static constexpr std::size_t piece_bytes = 16;
  [[nodiscard]] static constexpr std::size_t pieces_of(std::size_t width) noexcept {
    return (width + piece_bytes - 1) / piece_bytes;
  }
};
static_assert(sizeof(completion::block) + sizeof(completion::value) == handed_keys::piece_bytes);

/// A blank block in the client's hands. `word` = grant version (32) | group (16) | state (16).
struct grant_slot {
  enum state : std::uint64_t {
    empty = 0,    ///< the worker may put a grant here
    granted = 1,  ///< the client may take it (compare-and-swap to taken), the worker may revoke it (to empty)
    taken = 2,    ///< the client writes the block; it goes back by commit, release or death
  };
  std::atomic<std::uint64_t> word;
  std::atomic<std::uint64_t> block;  ///< block_ref

  static constexpr std::uint64_t make(std::uint32_t grant_version, std::uint16_t group, std::uint64_t state) noexcept {
    return (std::uint64_t{grant_version} << 32) | (std::uint64_t{group} << 16) | state;
  }
  static constexpr std::uint32_t version_of(std::uint64_t word) noexcept {
    return static_cast<std::uint32_t>(word >> 32);
  }
  static constexpr std::uint16_t group_of(std::uint64_t word) noexcept {
    return static_cast<std::uint16_t>(word >> 16);
  }
  static constexpr std::uint64_t state_of(std::uint64_t word) noexcept { return word & 0xffff; }
};
static_assert(sizeof(grant_slot) == 16);

enum class session_phase : std::uint32_t {
  active = 1,
  draining = 2,     ///< the node shuts down
  killed = 3,       ///< ended by the operator; nothing is accepted any more
  device_lost = 4,  ///< what its blocks lie on failed; nothing is accepted any more
  wrong_sums = 5,   ///< ended by the node, see wrong_blocks; nothing is accepted any more
};

/// First page of a session. Each group of words has a cache line of its own.
struct session_header {
  segment_header segment;
  std::uint64_t session = 0;  ///< number, unique for the life of the node
  std::uint32_t pin_slots = 0;
  std::uint32_t pad0 = 0;
  alignas(64) std::atomic<std::uint64_t> worker_epoch;  ///< written by each worker when it adopts the session
  std::atomic<std::uint32_t> phase;                     ///< session_phase
  std::atomic<std::uint32_t> wants_checksums;           ///< worker: blocks will be written down, sum them while copying
  std::atomic<std::uint32_t> asks_tiers;                ///< worker: a tier below says what it holds only when asked
  std::atomic<std::uint32_t> wrong_blocks;              ///< worker: blocks that did not have the bytes of their sums
  std::atomic<std::uint64_t> machine_choice[3];         ///< worker: choice_words; 0: no choice
  std::atomic<std::uint32_t> wants_spans;               ///< worker: it takes frames of spans; 0 from older ones
  alignas(64) std::atomic<std::uint64_t> submit_tail;   ///< client
  std::atomic<std::uint32_t> client_sleeps;             ///< client: ring the completion doorbell; who rings clears it
  std::atomic<std::uint64_t> touches_dropped;           ///< client: touch records it had no room for
  alignas(64) std::atomic<std::uint64_t> submit_head;   ///< worker
  std::atomic<std::uint32_t> worker_sleeps;             ///< worker: ring the submission doorbell; who rings clears it
  alignas(64) std::atomic<std::uint64_t> complete_tail;   ///< worker
  alignas(64) std::atomic<std::uint64_t> complete_head;   ///< client
  alignas(64) std::atomic<std::uint64_t> pin_high_water;  ///< client: no pin slot from here on was ever used
  /// Client: 1, before a device may write what it reserved. Worker: set_aside, when the session is over but for that.
  std::atomic<std::uint32_t> device_writes;
  static constexpr std::uint32_t set_aside = 2;
  std::atomic<std::uint32_t> departure;  ///< client: 1, it has closed the session and uses nothing of it any more
  alignas(64) lookup_words lookups;      ///< client; where earlier builds have spare bytes
};
static_assert(sizeof(session_header) <= page_bytes);

/// View of a mapped session segment; both sides. Copyable, does not own.
class session_memory {
 public:
  static constexpr std::uint64_t submissions = 2048;
  static constexpr std::uint64_t completions = 8192;
  static constexpr std::uint64_t grants = 1024;
  static constexpr std::uint64_t submissions_offset = page_bytes;
  static constexpr std::uint64_t completions_offset = submissions_offset + submissions * sizeof(submission);
  static constexpr std::uint64_t grants_offset = completions_offset + completions * sizeof(completion);
  static constexpr std::uint64_t pins_offset = grants_offset + grants * sizeof(grant_slot);
  static constexpr std::uint32_t max_pin_slots = 1U << 20;

  /// Bytes of the segment of a session with `pin_slots` pins.
  static constexpr std::uint64_t segment_bytes(std::uint32_t pin_slots) noexcept {
    return (pins_offset + std::uint64_t{pin_slots} * 8 + page_bytes - 1) / page_bytes * page_bytes;
  }

  session_memory() noexcept = default;
  session_memory(std::byte* base, std::uint32_t pin_slots) noexcept : base_(base), pin_slots_(pin_slots) {}

  /// Writes a fresh header; the rest of the segment is zero.
  static session_memory create(const segment& memory, std::uint64_t session, std::uint32_t pin_slots) noexcept;

  [[nodiscard]] session_header& header() const noexcept { return *reinterpret_cast<session_header*>(base_); }
  [[nodiscard]] std::byte* submission_at(std::uint64_t position) const noexcept {
    return base_ + submissions_offset + position % submissions * sizeof(submission);
  }
  [[nodiscard]] std::byte* completion_at(std::uint64_t position) const noexcept {
    return base_ + completions_offset + position % completions * sizeof(completion);
  }
  [[nodiscard]] grant_slot& grant(std::size_t i) const noexcept {
    return reinterpret_cast<grant_slot*>(base_ + grants_offset)[i];
  }
  /// 0: free; else block_ref bits of a pinned block.
  [[nodiscard]] std::atomic<std::uint64_t>& pin(std::size_t i) const noexcept {
    return reinterpret_cast<std::atomic<std::uint64_t>*>(base_ + pins_offset)[i];
  }
  [[nodiscard]] std::uint32_t pin_slots() const noexcept { return pin_slots_; }

  /// True when the node ended it. Thread-safe.
  [[nodiscard]] bool has_ended() const noexcept {
    return header().phase.load(std::memory_order_acquire) == static_cast<std::uint32_t>(session_phase::wrong_sums);
  }
  /// The choice of routines for copies and sums on this machine. Thread-safe.
  [[nodiscard]] choice_words choice() const noexcept;
  /// Writes it; for the worker. Thread-safe.
  void hand_over(const choice_words& choice) const noexcept;

 private:
  std::byte* base_ = nullptr;
  std::uint32_t pin_slots_ = 0;
};

/// The reason for which the node ended a session: wrong_sums.
[[nodiscard]] error ended_by_node(const session_memory& session);

/// Client's end of both rings. One thread at a time.
class client_rings {
 public:
  client_rings() noexcept = default;
  explicit client_rings(session_memory memory) noexcept : memory_(memory) {}

  /// Free places of the submission ring.
  [[nodiscard]] std::uint64_t room() const noexcept;
  /// Writes `entries` behind the tail, not yet visible. The caller checked room().
  void push(const submission& entry) noexcept;
  /// Shows all that was pushed. True: the worker sleeps.
  [[nodiscard]] bool publish() noexcept;
  /// Whoever gets true rings the worker's doorbell, and must: nobody else will for this sleep.
  [[nodiscard]] bool claim_wake() noexcept;
  /// Takes the next completion, if there is one.
  [[nodiscard]] std::optional<completion> pop() noexcept;
  /// Says whether the worker must ring the doorbell. False from arm(): completions came meanwhile, do not sleep.
  [[nodiscard]] bool arm() noexcept;
  void disarm() noexcept;

 private:
  session_memory memory_;
  std::uint64_t pushed_ = 0;  ///< entries behind the published tail
};

/// Worker's end of both rings. One thread at a time. The indices that the client writes are checked: a tail that is
/// ahead by more than the ring is malformed.
class worker_rings {
 public:
  worker_rings() noexcept = default;
  explicit worker_rings(session_memory memory) noexcept;

  /// Entries that wait; nothing when the client's tail makes no sense.
  [[nodiscard]] std::optional<std::uint64_t> waiting() const noexcept;
  /// A private copy of the `i`-th waiting entry.
  [[nodiscard]] submission peek(std::uint64_t i) const noexcept;
  /// The effect of the first `n` entries is done: their places may be used again.
  void advance(std::uint64_t n) noexcept;

  /// Free places of the completion ring; nothing when the client's head makes no sense.
  [[nodiscard]] std::optional<std::uint64_t> completion_room() const noexcept;
  void push(const completion& entry) noexcept;
  /// Shows all that was pushed. True: the client sleeps.
  [[nodiscard]] bool publish() noexcept;
  /// As client_rings::claim_wake(), for the client's doorbell. A worker that dies before it rings leaves that to the
  /// next one, which rings for each session that it takes over.
  [[nodiscard]] bool claim_wake() noexcept;

  /// Before the worker sleeps. False: entries came meanwhile.
  [[nodiscard]] bool arm() noexcept;
  void disarm() noexcept;

 private:
  session_memory memory_;
  std::uint64_t submit_head_ = 0;  ///< our copies: the shared words are writable by the client
  std::uint64_t complete_tail_ = 0;
};

/// Owner's side of the pins: which of a batch of condemned blocks are pinned. The caller has made their versions odd
/// and passed full_fence().
class pin_scan {
 public:
  /// `condemned`: block refs of one instance, any order.
  explicit pin_scan(std::span<const block_ref> condemned);
  /// Marks what this session pins. May be called for several sessions.
  void add(const session_memory& session) noexcept;
  /// True when the i-th condemned block is pinned by some session.
  [[nodiscard]] bool pinned(std::size_t i) const noexcept { return marks_[i] != 0; }

 private:
  std::vector<std::uint64_t> table_;  ///< open addressing: block_ref bits, 0 is empty
  std::vector<std::uint32_t> place_;  ///< table slot -> index into marks_
  std::vector<std::uint8_t> marks_;
  std::uint64_t mask_ = 0;
};

}  // namespace cenote::memory
