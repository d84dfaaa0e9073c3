// The records of keys, and the locations that do not fit into them.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "services/manager/index/key.hpp"
#include "services/manager/index/line_arena.hpp"
#include "services/manager/index/live_set.hpp"
#include "services/manager/index/location.hpp"
#include "services/manager/index/lookup_answer.hpp"
#include "services/manager/index/stable_array.hpp"

namespace cenote::manager {

/// A key and its locations, in one cache line. Readers use what is atomic.
///
/// Each change is one store of a word with release order, after which `sequence` grows. So a reader that finds the
/// same sequence in front of and behind its loads has seen the record as it was at one moment, and a writer that is
/// stopped within a change hides nothing. See record_reader.hpp.
struct alignas(64) index_record {
  static constexpr std::size_t inline_locations = 3;

  std::atomic<std::uint64_t> key_low{0};
  std::atomic<std::uint64_t> key_high{0};
  std::array<std::atomic<std::uint64_t>, inline_locations> locations{};  ///< packed; 0: none
  std::atomic<std::uint32_t> sequence{0};
  std::atomic<std::uint32_t> overflow{0};  ///< the number of a node + 1; 0: none
  std::uint32_t parent = no_record;        ///< of a record that is not in use: the next such
  std::uint32_t children = 0;
  std::uint32_t last_use = 0;  ///< tenths of a second
  std::uint16_t uses = 0;

  [[nodiscard]] bool has_key(const cache_key& key) const noexcept {
    return key_low.load(std::memory_order_acquire) == key.low && key_high.load(std::memory_order_acquire) == key.high;
  }
  [[nodiscard]] cache_key key() const noexcept {
    return {.low = key_low.load(std::memory_order_relaxed), .high = key_high.load(std::memory_order_relaxed)};
  }
  void add_use(std::uint32_t now) noexcept {
    last_use = now;
    if (uses < std::numeric_limits<std::uint16_t>::max()) ++uses;
  }
};
static_assert(sizeof(index_record) == 64);

/// Locations of a record beyond those in it.
struct overflow_node {
  static constexpr std::size_t node_locations = 3;

  std::array<std::atomic<std::uint64_t>, node_locations> locations{};
  std::atomic<std::uint32_t> next{0};  ///< the number of a node + 1; 0: none
};
static_assert(sizeof(overflow_node) == 32);

/// Records and nodes by number, in memory that never moves and lives as long as the store; numbers are used again. One
/// thread changes it; entry(), node() and has_entry() are for any.
///
/// A record whose key is gone keeps its number while it has children, so that a child never counts for another key. It
/// gives up its own parent at once: there are at most as many such records as live ones.
class record_store {
 public:
  explicit record_store(line_arena& arena) noexcept : records_(arena), nodes_(arena) {}

  [[nodiscard]] index_record& entry(std::uint32_t record) const noexcept { return records_[record]; }
  [[nodiscard]] overflow_node& node(std::uint32_t number) const noexcept { return nodes_[number]; }

  /// Whether there is memory for a number, no_record among them. Any thread.
  [[nodiscard]] bool has_entry(std::uint32_t record) const noexcept {
    return record < readable_.load(std::memory_order_acquire);
  }

  /// The number that take() gives next, for which there is memory then. Throws std::bad_alloc.
  [[nodiscard]] std::uint32_t make_room();
  /// A record of a key without locations. After make_room().
  std::uint32_t take(const cache_key& key, std::uint32_t parent) noexcept;
  /// Ends a record without locations that no table leads to any more.
  void release(std::uint32_t record) noexcept;

  /// Adds a location. Throws std::bad_alloc and changes nothing.
  void add_location(std::uint32_t record, const location& place);
  /// Stores another location or none, 0, into a word of a record.
  void change(index_record& record, std::atomic<std::uint64_t>& word, std::uint64_t packed) noexcept {
    word.store(packed, std::memory_order_release);
    grow_sequence(record);
  }
  /// Takes a node without locations out of a record, if it has one.
  void drop_empty_node(index_record& record) noexcept;

  /// Calls `visit(word)` for each word that may hold a location until it gives false; false if it did.
  template <class Visit>
  bool visit_words(std::uint32_t record, Visit&& visit) const {
    index_record& target = entry(record);
    for (auto& word : target.locations) {
      if (!visit(word)) return false;
    }
    for (std::uint32_t link = target.overflow.load(std::memory_order_relaxed); link != 0;) {
      overflow_node& next = node(link - 1);
      for (auto& word : next.locations) {
        if (!visit(word)) return false;
      }
      link = next.next.load(std::memory_order_relaxed);
    }
    return true;
  }

  [[nodiscard]] bool is_live(std::uint32_t record) const noexcept { return live_.contains(record); }
  [[nodiscard]] const live_set& live() const noexcept { return live_; }
  /// All numbers are below.
  [[nodiscard]] std::uint32_t bound() const noexcept { return bound_; }
  /// Beside those of the arena.
  [[nodiscard]] std::size_t bytes() const noexcept { return live_.bytes(); }

 private:
  static void grow_sequence(index_record& record) noexcept {
    record.sequence.store(record.sequence.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void give_up_parent(index_record& record) noexcept;
  void recycle(std::uint32_t record) noexcept;

  std::atomic<std::uint32_t> readable_{0};
  stable_array<index_record> records_;
  stable_array<overflow_node> nodes_;
  alignas(64) live_set live_{};  ///< from here on in lines that readers do not need
  std::uint32_t bound_ = 0;
  std::uint32_t unused_ = no_record;  ///< the first record that is not in use
  std::uint32_t node_bound_ = 0;
  std::uint32_t unused_nodes_ = 0;  ///< the number of the first + 1
};

}  // namespace cenote::manager
