// The keys of one instance and where they lie.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "services/manager/index/extent_table.hpp"
#include "services/manager/index/key.hpp"
#include "services/manager/index/key_hash.hpp"
#include "services/manager/index/line_arena.hpp"
#include "services/manager/index/location.hpp"
#include "services/manager/index/lookup_answer.hpp"
#include "services/manager/index/record_reader.hpp"
#include "services/manager/index/record_store.hpp"
#include "services/manager/index/slot_table.hpp"
#include "services/manager/index/spec_sets.hpp"

namespace cenote::manager {

/// Of a change that expects a state: mismatch if the location has another one.
enum class change_outcome : std::uint8_t { changed, mismatch, not_found };
CENOTE_ENUM_NAMES(change_outcome, changed, mismatch, not_found);

struct erase_outcome {
  change_outcome outcome = change_outcome::not_found;
  bool is_key_gone = false;  ///< it was the last location: the record's number may be another key's from now on

  bool operator==(const erase_outcome&) const = default;
};

/// An index in memory: keys, each with any number of locations, at most one in an extent. Readers are any threads; they
/// wait for nothing, change nothing, and see each key as it was at one moment. All else belongs to one thread at a
/// time. Memory is given back when the index dies.
class instance_index {
 public:
  /// `seed`: a random number that clients do not know, see key_hash.
  explicit instance_index(std::uint64_t seed) noexcept : hash_(seed) {}
  instance_index(const instance_index&) = delete;
  instance_index& operator=(const instance_index&) = delete;
  instance_index(instance_index&&) = delete;
  instance_index& operator=(instance_index&&) = delete;
  ~instance_index() = default;

  // Any thread. Answers are cleared first; they may throw std::bad_alloc. A key is present if a location with specs is
  // SERVING in a usable storage.

  /// The leading keys that are present and have `rule.all`, cut back to the last key that has `rule.last`; their
  /// number.
  std::size_t match_prefix(std::span<const cache_key> keys, const read_order& order, const prefix_rule& rule,
                           lookup_answer& answer) const;
  /// Their number, and their records.
  [[nodiscard]] std::size_t count_prefix(std::span<const cache_key> keys, const read_order& order,
                                         const prefix_rule& rule, std::vector<std::uint32_t>& records) const;
  /// Where the last `window` present keys in a row begin; nothing if there are none, or `window` is 0. Keys from the
  /// end on are skipped as far as one absent key rules them out. The answer has the window's keys.
  [[nodiscard]] std::optional<std::size_t> match_window(std::span<const cache_key> keys, std::size_t window,
                                                        const read_order& order, lookup_answer& answer) const;
  /// An entry for each key; one that is absent has no parts.
  void read_each(std::span<const cache_key> keys, const read_order& order, lookup_answer& answer) const;
  /// All locations of each key, of any state and in any storage, in the order of the keys.
  void read_states(std::span<const cache_key> keys, std::vector<key_state>& states) const;
  /// Keys in the index, with locations or without.
  [[nodiscard]] std::size_t count() const noexcept { return count_.load(std::memory_order_relaxed); }

  /// The record of a key, with locations or without; no_record if it has none. The number is of use to the writer.
  [[nodiscard]] std::uint32_t find(const cache_key& key) const noexcept { return reader().find(key); }

  // The writer's from here on.

  /// A record for a key that has none, without locations; readers see it with its first one. `parent`: the record of
  /// the key in front of it, or no_record. Throws std::bad_alloc and changes nothing.
  std::uint32_t add(const cache_key& key, std::uint32_t parent);
  /// Takes a record out that has no locations, as add() made it.
  void drop(std::uint32_t record) noexcept;
  [[nodiscard]] bool has_record(std::uint32_t record) const noexcept { return records_.is_live(record); }
  [[nodiscard]] cache_key key_of(std::uint32_t record) const noexcept { return records_.entry(record).key(); }
  /// no_record if it has none, or that key is gone.
  [[nodiscard]] std::uint32_t parent_of(std::uint32_t record) const noexcept {
    const std::uint32_t parent = records_.entry(record).parent;
    return records_.is_live(parent) ? parent : no_record;
  }
  [[nodiscard]] std::uint32_t children_of(std::uint32_t record) const noexcept {
    return records_.entry(record).children;
  }
  [[nodiscard]] std::uint32_t last_use_of(std::uint32_t record) const noexcept {
    return records_.entry(record).last_use;
  }
  /// At most 65,535.
  [[nodiscard]] std::uint32_t uses_of(std::uint32_t record) const noexcept { return records_.entry(record).uses; }
  /// `now`: in tenths of a second. A number without a record is passed over: an answer may be older than the record.
  void note_use(std::uint32_t record, std::uint32_t now) noexcept;

  /// Calls `visit(const location&)` for each location of a record.
  template <class Visit>
  void visit_locations(std::uint32_t record, Visit&& visit) const {
    records_.visit_words(record, [&](const std::atomic<std::uint64_t>& word) {
      if (const std::uint64_t packed = word.load(std::memory_order_relaxed); packed != 0) visit(unpack(packed));
      return true;
    });
  }
  /// False, and nothing changes, if the record has a location in the extent, or the location's state is none. Throws
  /// std::bad_alloc and changes nothing.
  bool add_location(std::uint32_t record, const location& place);
  /// Gives the location in `extent` the state `next`, not none, if it has the one expected. `record` may be no_record.
  change_outcome change_state(std::uint32_t record, std::uint32_t extent, location_state expected,
                              location_state next) noexcept;
  /// change_state() from writing to serving, with a use of the record at `now`.
  change_outcome serve(std::uint32_t record, std::uint32_t extent, std::uint32_t now) noexcept;
  /// Takes the location in `extent` out, and with the last one the record.
  erase_outcome erase_location(std::uint32_t record, std::uint32_t extent, location_state expected) noexcept;

  [[nodiscard]] extent_table& extents() noexcept { return extents_; }
  [[nodiscard]] spec_sets& sets() noexcept { return sets_; }
  /// Of all memory, with what is kept for readers and for growing.
  [[nodiscard]] std::size_t bytes() const noexcept;

  /// Calls `visit(record)` for up to `limit` records with numbers from `cursor` on, which it may erase; the cursor for
  /// the next call, no_record behind the last one. Records that come or go in between may be missed or not.
  template <class Visit>
  std::uint32_t scan(std::uint32_t cursor, std::size_t limit, Visit&& visit) {
    const live_set& live = records_.live();
    for (cursor = live.next(cursor, no_record); cursor != no_record; cursor = live.next(cursor + 1, no_record)) {
      if (limit-- == 0) return cursor;
      visit(cursor);
    }
    return no_record;
  }
  /// `amount` different records, or all if there are fewer, each choice of so many equally likely (Floyd, "A sample of
  /// brilliance", 1987).
  template <std::uniform_random_bit_generator Random>
  [[nodiscard]] std::vector<std::uint32_t> sample(std::size_t amount, Random& random) const;
  /// Brings up to some 64 keys into the processor's caches, ahead of calls for them.
  void prefetch(std::span<const cache_key> keys) const noexcept;

 private:
  [[nodiscard]] record_reader reader() const noexcept { return {hash_, table_, records_, extents_, sets_}; }
  [[nodiscard]] std::uint64_t hash_of(std::uint32_t record) const noexcept { return hash_(key_of(record)); }
  [[nodiscard]] std::atomic<std::uint64_t>* find_word(std::uint32_t record, std::uint32_t extent) const noexcept {
    if (!has_record(record)) return nullptr;
    std::atomic<std::uint64_t>* target = nullptr;
    records_.visit_words(record, [&](std::atomic<std::uint64_t>& word) {
      const std::uint64_t packed = word.load(std::memory_order_relaxed);
      if (packed != 0 && unpack(packed).extent == extent) target = &word;
      return target == nullptr;
    });
    return target;
  }

  line_arena arena_{};
  key_hash hash_;
  slot_table table_{arena_};
  record_store records_{arena_};
  extent_table extents_{arena_};
  spec_sets sets_{arena_};
  alignas(64) std::atomic<std::size_t> count_{0};
};

template <std::uniform_random_bit_generator Random>
std::vector<std::uint32_t> instance_index::sample(std::size_t amount, Random& random) const {
  const std::size_t all = count();
  amount = std::min(amount, all);
  std::vector<std::size_t> ranks;  // sorted
  ranks.reserve(amount);
  for (std::size_t last = all - amount; last < all; ++last) {
    std::size_t rank = std::uniform_int_distribution<std::size_t>(0, last)(random);
    auto place = std::ranges::lower_bound(ranks, rank);
    if (place != ranks.end() && *place == rank) place = std::ranges::lower_bound(ranks, rank = last);
    ranks.insert(place, rank);
  }
  std::vector<std::uint32_t> records;
  records.reserve(amount);
  for (const std::size_t rank : ranks) records.push_back(records_.live().select(rank));
  return records;
}

}  // namespace cenote::manager
