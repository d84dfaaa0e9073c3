// The protocol of reader, owner, writer and restart as threads of single steps (docs/architecture.md, "Reading" and
// "Reusing memory").
//
//   reader (pins)          owner: a round per writer that wants a block   restart: a new owner
//   entry value, key,      condemn: version := odd, all of the batch      record present: key beside,
//     value again          seq_cst fence                                    version even again
//   slot := block          scan every slot                                else: version odd
//   seq_cst fence          not pinned: entry := 0, record := free         entries without a record := 0
//   version = value's?     pinned: version := even, entry again           records without entry: insert
//   key beside = mine?       or entry := 0, record := zombie              then rounds as on the left; a block
//   read, read             record := granted, grant word                    without a present record passes
//   slot := 0              (the writer fills the block, commits)            the scan before its reuse
//                          record := present, key beside,
//                          version := even, entry
//
// The match-only reader leaves the slot out and reads the version twice around the key. Anybody may die at
// any step. Key changes in an entry: value 0, key, value.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/unit/memory/model/weak_memory.hpp"

namespace cenote::model {

/// The protocol's rules; a test takes one away and the search must find what it prevents.
struct rules {
  bool reader_fences = true;
  bool reader_rereads_version = true;
  bool reader_trusts_entry_only = false;  ///< re-reads the entry's value instead of the block's version
  bool reader_compares_key = true;
  bool match_rereads_version = true;
  bool readers_never_spin = true;  ///< else a reader starts again when an entry changed under it
  bool owner_fences = true;
  bool odd_before_scan = true;
  bool pins_end_by_death_only = true;     ///< else the scan forgets readers that are alive ("deadline")
  bool grants_end_by_death_only = true;   ///< else a writer that is slow loses its block ("time-out")
  bool record_freed_before_reuse = true;  ///< else the record still says present while the block is filled
  bool commit_is_release = true;
  bool restart_scans_pins = true;
  bool restart_keeps_versions = true;
  bool restart_mends_index = true;
  bool versions_must_not_decrease = true;  ///< check it at once, not only what follows from it
  // What only an order like Arm's, or one that reorders stores, can break.
  bool reader_acquires_entry = true;   ///< else the entry's key is read before its value
  bool entries_are_fenced = true;      ///< a key is written and read between two fenced values
  bool match_acquires_version = true;  ///< else the key beside is read before the version
  bool match_fences_loads = true;      ///< between the key beside and the version's second reading
  bool unpin_is_release = true;        ///< else the pin ends before the bytes are read
  bool scan_acquires = true;           ///< else a block is given away before its pins are looked at
  bool grant_is_release = true;        ///< else the word is seen before the block beside it
  bool writer_acquires_grant = true;   ///< else the block is read before the word
  bool version_is_release = true;      ///< of a publication
  bool entry_value_is_release = true;  ///< else the value is seen before its key
  bool restart_version_is_release = true;
};

enum class reader_kind : std::uint8_t { none, pins, matches };
enum class pinned_policy : std::uint8_t { restore, zombie };

/// One search: who takes part, and how often somebody may die.
struct scenario {
  memory_order_model order = memory_order_model::tso;
  rules rule{};
  pinned_policy pinned = pinned_policy::restore;
  std::array<reader_kind, reader_count> readers{reader_kind::pins, reader_kind::none};
  std::array<std::uint8_t, reader_count> reader_keys{0, 0};
  std::array<std::uint8_t, writer_count> writer_keys{1, 0};
  std::uint8_t writers = 2;
  std::uint8_t lookups = 1;  ///< of each reader, one after the other
  std::uint8_t owner_kills = 0;
  std::uint8_t client_kills = 0;
  std::uint8_t version_mask = 0x3f;     ///< version bits in an entry's value; 1 = wrap at every publication
  bool owner_fills = false;             ///< blocks from a lower tier, in place of writers
  bool second_block_published = false;  ///< block 1 starts as key 1 instead of never used
};

enum class violation : std::uint8_t {
  none,
  wrong_bytes,         ///< a pinned reader whose checks passed read another key's bytes
  false_match,         ///< a match answered hit for a key that was at no moment published there
  two_writers,         ///< a block was given to a second writer
  write_to_published,  ///< bytes of a published block changed
  version_decreased,
  reader_stuck,  ///< a reader had no step to take, or went back
  lost,          ///< at rest a present record is not found by a lookup, or holds other bytes
  stuck,         ///< at rest the owner is not finished or a commit is unanswered
  no_block       ///< a writer took a grant, and found no block beside it
};
const char* to_string(violation what) noexcept;

/// What happened on the way; proves that a clean search is not an empty one.
enum event : std::uint32_t {
  pinned_hit = 1U << 0,
  matched_hit = 1U << 1,
  missed_in_index = 1U << 2,
  missed_after_pin = 1U << 3,
  restored = 1U << 4,
  became_zombie = 1U << 5,
  zombie_reused = 1U << 6,
  block_refilled = 1U << 7,
  restart_mended_version = 1U << 8,
  restart_cleared_entry = 1U << 9,
  reader_died_with_pin = 1U << 10,
  writer_died_with_grant = 1U << 11,
  put_refused = 1U << 12
};

enum thread_id : std::uint8_t { owner_thread = 0, first_reader = 1, first_writer = 3, thread_count = 5 };

/// Everything that can differ between two moments. Bytes only, no padding: compared and hashed as memory.
struct state {
  std::array<std::uint8_t, word_count> memory{};
  std::array<store_buffer, thread_count> buffers{};
  std::array<open_loads, thread_count> loads{};
  struct {
    std::uint8_t pc, i, writer, condemned, pinned, clean, insert, then;
  } owner{};
  struct {
    std::uint8_t pc, entry, value, version, truth, turn;
  } readers[reader_count]{};
  struct {
    std::uint8_t pc, block;
  } writers[writer_count]{};
  std::uint8_t owner_kills = 0;
  std::uint8_t client_kills = 0;
  violation breach = violation::none;  ///< counts when all open loads have found what was hoped for
};

/// One step of the search: a thread runs, also past its next load, a store leaves its buffer, an open load is
/// satisfied, or a process dies.
struct move {
  enum class kind : std::uint8_t { run, run_past_load, drain, satisfy, die, die_losing_stores };
  kind what = kind::run;
  std::uint8_t thread = 0;
  std::uint8_t place = 0;  ///< in the buffer, or among the open loads
};

struct outcome {
  bool enabled = false;
  violation broken = violation::none;
  std::uint32_t events = 0;
  std::uint8_t at = 0;  ///< where in its program the owner did it, for `describe`
};

state initial_state(const scenario& with);

/// A quick look before a state is copied: false when `m` certainly cannot happen.
bool may_happen(const scenario& with, const state& s, move m) noexcept;

/// Applies `m`, which `may_happen`, to `s`; if it cannot after all, leaves `s` unspecified and says so.
outcome apply(const scenario& with, state& s, move m);

/// Is a load open that may never find what was hoped for? Then the state is of no real execution yet.
bool has_open_loads(const state& s) noexcept;

/// What must hold when nothing can run any more (deaths apart).
violation check_at_rest(const scenario& with, const state& s);

/// Every move that could be possible, for the search to try.
std::vector<move> all_moves();

/// "owner: version[0] = 3 becomes visible"; `s` is the state before the move, `effect` what it did.
std::string describe(const state& s, move m, const outcome& effect);

}  // namespace cenote::model
