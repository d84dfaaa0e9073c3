// Sets of holders: interned, counted, immutable; a set of one holder is its number.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "services/indexer/forest/chunked_array.hpp"
#include "services/indexer/forest/epochs.hpp"
#include "services/indexer/forest/holder_table.hpp"
#include "services/indexer/forest/number_table.hpp"

namespace cenote::indexer {

/// 0: no holder; below first_bitmap: this one holder; else a bitmap.
using set_number = std::uint32_t;

/// 64 ranks of pods in a plane of a kind: the words of a set that are not 0, by word, then plane.
struct set_word {
  std::uint64_t bits = 0;
  std::uint16_t word = 0;
  std::uint8_t plane = 0;
  holder_kind kind = 0;
};

/// One writer adds, drops and counts; readers within an epoch look at words.
class holder_sets {
 public:
  static constexpr set_number first_bitmap = 65'536;
  static constexpr set_number no_set = 0xffff'ffff;  ///< the budget had no room

  /// At most `bitmaps` sets of several holders. Throws std::bad_alloc.
  holder_sets(retirement_list& retired, holder_table& holders, std::size_t bitmaps, std::uint64_t seed);
  holder_sets(const holder_sets&) = delete;
  holder_sets& operator=(const holder_sets&) = delete;
  holder_sets(holder_sets&&) = delete;
  holder_sets& operator=(holder_sets&&) = delete;
  ~holder_sets();

  /// The set and this holder; the set if it has it. What it gives is not counted: acquire() it or settle() it.
  [[nodiscard]] set_number sum(set_number set, holder added) noexcept { return change(set, added, change_kind::sum); }
  /// The set without this holder; the set if it has it not. Not counted.
  [[nodiscard]] set_number difference(set_number set, holder removed) noexcept {
    return change(set, removed, change_kind::difference);
  }
  [[nodiscard]] bool contains(set_number set, holder number) const noexcept;

  void acquire(set_number set) noexcept {
    if (set >= first_bitmap) ++record(set)->references;
  }
  void release(set_number set) noexcept {
    if (set >= first_bitmap && --record(set)->references == 0) drop(set);
  }
  /// Drops the set unless something refers to it.
  void settle(set_number set) noexcept {
    if (set >= first_bitmap && record(set)->references == 0 && birth(set) != 0) drop(set);
  }
  /// Ends the life of a number that was retired.
  void reuse(set_number set) noexcept {
    records_[set - first_bitmap].store(nullptr, std::memory_order_relaxed);
    free_.push_back(set);
  }

  /// The words of a set; `single` holds the one of a single holder. Readers, too.
  [[nodiscard]] std::span<const set_word> words(set_number set, set_word& single) const noexcept {
    if (set >= first_bitmap) {
      const set_record* const found = record(set);
      return {found->words(), found->count};
    }
    if (set == 0) return {};
    const holder_place where = holders_.place(set);
    single = {std::uint64_t{1} << (where.member % 64), static_cast<std::uint16_t>(where.member / 64), where.plane,
              where.kind};
    return {&single, 1};
  }
  /// Starts loading a set. Readers, too.
  void prefetch(set_number set) const noexcept {
    if (set >= first_bitmap) __builtin_prefetch(record(set));
  }

  [[nodiscard]] std::size_t size() const noexcept { return index_.size(); }

 private:
  enum class change_kind : std::uint32_t { sum, difference };
  struct set_record {
    std::uint64_t birth = 0;  ///< 0: dropped
    std::uint32_t references = 0;
    std::uint32_t count = 0;    ///< words
    std::uint32_t holders = 0;  ///< bits
    std::uint32_t unused = 0;
    std::uint64_t hash = 0;

    [[nodiscard]] const set_word* words() const noexcept { return reinterpret_cast<const set_word*>(this + 1); }
    [[nodiscard]] set_word* words() noexcept { return reinterpret_cast<set_word*>(this + 1); }
    [[nodiscard]] static std::size_t bytes(std::size_t count) noexcept {
      return sizeof(set_record) + count * sizeof(set_word);
    }
  };
  /// A change that was made before; births prove that both sets are still those.
  struct transition {
    set_number set = no_set;
    set_number result = no_set;
    holder changed = 0;
    change_kind kind = change_kind::sum;
    std::uint64_t set_birth = 0;
    std::uint64_t result_birth = 0;
  };
  template <class T>
  using counted_vector = std::vector<T, budget_allocator<T>>;

  [[nodiscard]] set_record* record(set_number set) const noexcept {
    return records_[set - first_bitmap].load(std::memory_order_acquire);
  }
  [[nodiscard]] std::uint64_t birth(set_number set) const noexcept;
  [[nodiscard]] transition& cached(set_number set, holder changed, change_kind kind) noexcept;
  [[nodiscard]] set_number change(set_number set, holder changed, change_kind kind) noexcept;
  [[nodiscard]] set_number make(set_number set, holder changed, change_kind kind) noexcept;
  [[nodiscard]] set_number intern(std::span<const set_word> words, std::uint64_t hash, std::uint32_t holders) noexcept;
  [[nodiscard]] std::uint64_t hash_of(std::span<const set_word> words) const noexcept;
  void drop(set_number set) noexcept;

  retirement_list& retired_;
  holder_table& holders_;
  std::uint64_t seed_;
  chunked_array<std::atomic<set_record*>> records_;
  number_table index_;
  std::uint32_t bound_ = 0;  ///< numbers of bitmaps that were given out
  std::uint64_t births_ = 0;
  counted_vector<set_number> free_;
  counted_vector<set_word> scratch_;
  std::array<transition, 1024> transitions_{};
};

}  // namespace cenote::indexer
