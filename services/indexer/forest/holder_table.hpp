// The numbers of holders: what holds a block is a medium of a data-parallel rank of a pod.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "services/indexer/forest/chunked_array.hpp"
#include "services/indexer/forest/epochs.hpp"
#include "services/indexer/forest/number_table.hpp"

namespace cenote::indexer {

/// Number of (pod, rank, medium), from 1; 0 is none.
using holder = std::uint32_t;

/// Number of a kind of memory, below most_media.
using medium_number = std::uint8_t;
constexpr std::size_t most_media = 8;
constexpr medium_number gpu_medium = 0;

/// Number of a cache group's slot in its model; slot 0 has the prefix of models with one group. The last one is for
/// blocks that a router expects: its media are generations of them, which end one behind the other.
using slot_number = std::uint8_t;
constexpr std::size_t most_slots = 31;
constexpr slot_number expected_slot = most_slots;
/// The slot of cache groups that found none: nothing satisfies it, so that a rank with it has no prefix.
constexpr slot_number closed_slot = most_slots - 1;

/// A medium of a slot.
using holder_kind = std::uint8_t;
[[nodiscard]] constexpr holder_kind kind_of(slot_number slot, medium_number medium) noexcept {
  return static_cast<holder_kind>(slot * most_media + medium);
}
[[nodiscard]] constexpr slot_number slot_of(holder_kind kind) noexcept {
  return static_cast<slot_number>(kind / most_media);
}
[[nodiscard]] constexpr medium_number medium_of(holder_kind kind) noexcept {
  return static_cast<medium_number>(kind % most_media);
}

/// Reasons for which a holder or medium has no number.
enum class holder_refusal : std::uint8_t {
  long_name,      ///< a pod's name has more than 256 bytes, a medium's more than 31, or either none
  too_many,       ///< the bound of holders, pods or media is reached
  out_of_memory,  ///< the index's bound of bytes is reached
};
/// True for media that count stores: a GPU's blocks are a set, and so are those that a router expects.
[[nodiscard]] constexpr bool is_counted(holder_kind kind) noexcept {
  return medium_of(kind) != gpu_medium && slot_of(kind) != expected_slot;
}

/// The name of a holder: a medium of a cache group of a data-parallel rank of a pod that serves a model.
struct holder_name {
  std::string_view pod;
  std::uint16_t model = 0;  ///< its number in the model_table
  std::uint16_t rank = 0;
  holder_kind kind = 0;
};

/// A rank of a pod: where its bits are in a set.
struct pod_rank {
  std::uint64_t hash = 0;      ///< of pod, model and rank
  std::uint64_t pod_hash = 0;  ///< of pod and model
  std::uint32_t number = 0;    ///< below holder_table::member_bound()
  std::uint16_t model = 0;
  std::uint16_t rank = 0;
  std::uint16_t length = 0;             ///< of the name, which lies behind this
  std::uint32_t holders = 0;            ///< numbers that are in use, the writer's
  std::atomic<std::uint32_t> slots{0};  ///< those of its cache groups, a bit each
  std::atomic<std::uint32_t> step{1};   ///< blocks into which a block of its engine is cut

  [[nodiscard]] std::string_view pod() const noexcept { return {reinterpret_cast<const char*>(this + 1), length}; }
};

/// Where the bit of a holder is: the plane of its kind, the number of its pod's rank.
struct holder_place {
  std::uint16_t member = 0;
  std::uint8_t plane = 0;
  holder_kind kind = 0;
};

/// Facts about a rank of a pod besides its blocks.
struct member_mark {
  bool is_hidden = false;    ///< it is left out of answers
  bool is_degraded = false;  ///< its events are lost for good: it may have more than the index knows

  friend bool operator==(const member_mark&, const member_mark&) = default;
};

/// Gives numbers to holders and takes them back. A rank of a pod is one bit of a word, each kind a plane of such
/// words. A holder that was killed keeps its bit until no block has it any more; the next of the same name gets the
/// same bit of another plane of the kind. So a clear is one bit of `live`, and an answer needs no other look at
/// holders. One thread changes it. Functions marked "Readers, too" may be called by readers within an epoch.
class holder_table {
 public:
  static constexpr std::size_t most_holders = 65'535;
  static constexpr std::size_t most_name = 256;
  static constexpr std::size_t most_planes = 255;
  static constexpr std::uint32_t no_member = number_table::no_number;

  /// At most `members` ranks of pods. Throws std::bad_alloc.
  holder_table(retirement_list& retired, std::size_t members, std::uint64_t seed);
  holder_table(const holder_table&) = delete;
  holder_table& operator=(const holder_table&) = delete;
  holder_table(holder_table&&) = delete;
  holder_table& operator=(holder_table&&) = delete;
  ~holder_table();

  /// The number of a medium: gpu, cpu, disk, shared_storage and object_store have theirs, others get the next.
  [[nodiscard]] std::expected<medium_number, holder_refusal> medium_of(std::string_view name) noexcept;
  /// The name of a medium. Readers, too.
  [[nodiscard]] std::string_view medium_name(medium_number medium) const noexcept;

  /// The number of a holder, a new one if it has none.
  [[nodiscard]] std::expected<holder, holder_refusal> open(const holder_name& name) noexcept;
  /// The number of a holder, 0 if it has none.
  [[nodiscard]] holder find(const holder_name& name) const noexcept;
  /// The number of a pod's rank, no_member if it has none.
  [[nodiscard]] std::uint32_t find_member(std::string_view pod, std::uint16_t model, std::uint16_t rank) const noexcept;
  /// The holder holds nothing from now on, and its number is dead: O(1). What has its bit is swept later.
  void kill(holder number) noexcept;
  [[nodiscard]] bool is_live(holder number) const noexcept;

  /// Holders that were killed and not swept.
  [[nodiscard]] std::span<const holder> dead() const noexcept { return dead_; }
  /// Takes `count` of the dead, the oldest, as swept: their numbers may be given out when readers have left.
  void retire_dead(std::size_t count) noexcept;
  /// Ends the life of a number or member that was retired.
  void reuse_holder(holder number) noexcept;
  void reuse_member(std::uint32_t number) noexcept { free_members_.push_back(number); }

  /// Where a holder's bit is. Readers, too.
  [[nodiscard]] holder_place place(holder number) const noexcept {
    const std::uint32_t packed = states_[number].place.load(std::memory_order_relaxed);
    return {static_cast<std::uint16_t>(packed), static_cast<std::uint8_t>(packed >> 16),
            static_cast<holder_kind>(packed >> 24)};
  }
  /// The bits of 64 members in a plane that are not dead. Readers, too.
  [[nodiscard]] std::uint64_t live(std::uint8_t plane, std::uint32_t word) const noexcept {
    return planes_[plane].load(std::memory_order_acquire)->live(word).load(std::memory_order_relaxed);
  }
  /// The holder whose bit this is, dead or not; 0: none. Readers, too.
  [[nodiscard]] holder holder_at(std::uint8_t plane, std::uint32_t member) const noexcept {
    const plane_row* const row = planes_[plane].load(std::memory_order_acquire);
    return row->holder_of(words_, member).load(std::memory_order_relaxed);
  }
  /// The rank of a pod; null if the number has none. Readers, too, until they leave the epoch.
  [[nodiscard]] const pod_rank* member(std::uint32_t number) const noexcept {
    return members_[number].load(std::memory_order_acquire);
  }
  /// Whether any rank of a pod is of this model.
  [[nodiscard]] bool has_members(std::uint16_t model) const noexcept;
  /// Numbers of members are below this. Readers, too.
  [[nodiscard]] std::uint32_t member_bound() const noexcept { return member_bound_.load(std::memory_order_acquire); }
  /// Sets in `words` the bits of all ranks of these pods; true if there are any. Readers, too.
  /// `scratch` is used again by the next call; throws std::bad_alloc where it grows.
  bool filter(std::span<const std::string_view> pods, std::uint16_t model, std::span<std::uint64_t> words,
              std::vector<std::uint64_t>& scratch) const;
  /// The bits of 64 members that are not hidden from answers. Readers, too.
  [[nodiscard]] std::uint64_t visible(std::uint32_t word) const noexcept {
    return ~marks_[word].hidden.load(std::memory_order_relaxed);
  }
  /// The bits of 64 members that have lost events for good. Readers, too.
  [[nodiscard]] std::uint64_t degraded(std::uint32_t word) const noexcept {
    return marks_[word].degraded.load(std::memory_order_relaxed);
  }
  /// Whether any member is marked as degraded. Readers, too.
  [[nodiscard]] bool has_degraded() const noexcept { return degraded_count_.load(std::memory_order_relaxed) > 0; }
  /// Marks a member, which keeps its blocks.
  void mark(std::uint32_t member, member_mark state) noexcept;
  /// The slots of a member's cache groups, a bit each.
  void set_slots(std::uint32_t member, std::uint32_t slots) noexcept {
    members_[member].load(std::memory_order_relaxed)->slots.store(slots, std::memory_order_relaxed);
  }
  /// The blocks into which a block of a member's engine is cut; at least 1.
  void set_step(std::uint32_t member, std::uint32_t blocks) noexcept {
    members_[member].load(std::memory_order_relaxed)->step.store(blocks, std::memory_order_relaxed);
  }
  /// The words that hold a bit of each member.
  [[nodiscard]] std::size_t words() const noexcept { return words_; }

  /// Blocks that the holder has, and those that it had when memory dropped them. Any thread.
  [[nodiscard]] std::uint64_t blocks(holder number) const noexcept {
    return states_[number].blocks.load(std::memory_order_relaxed);
  }
  [[nodiscard]] std::uint64_t dropped(holder number) const noexcept {
    return states_[number].dropped.load(std::memory_order_relaxed);
  }
  /// Calls `visit(kind, blocks)` for each live holder of a member. Readers, too.
  template <class Visit>
  void visit_live(std::uint32_t member, Visit&& visit) const {
    const std::size_t planes = plane_count_.load(std::memory_order_acquire);
    for (std::size_t i = 0; i < planes; ++i) {
      const auto plane = static_cast<std::uint8_t>(i);
      if (((live(plane, member / 64) >> (member % 64)) & 1) == 0) continue;
      visit(plane_kinds_[i], blocks(holder_at(plane, member)));
    }
  }
  void add_blocks(holder number, std::int64_t change) noexcept {
    auto& blocks = states_[number].blocks;
    blocks.store(blocks.load(std::memory_order_relaxed) + static_cast<std::uint64_t>(change),
                 std::memory_order_relaxed);
  }
  void add_dropped(holder number, std::uint64_t count) noexcept {
    auto& dropped = states_[number].dropped;
    dropped.store(dropped.load(std::memory_order_relaxed) + count, std::memory_order_relaxed);
  }

 private:
  struct holder_state {
    std::atomic<std::uint64_t> blocks{0};
    std::atomic<std::uint64_t> dropped{0};
    std::atomic<std::uint32_t> place{0};
  };
  /// Marks of 64 members.
  struct mark_word {
    std::atomic<std::uint64_t> hidden{0};
    std::atomic<std::uint64_t> degraded{0};
  };
  /// A plane: words of live bits, then a holder for each member.
  struct plane_row {
    [[nodiscard]] static std::size_t bytes(std::size_t words) noexcept { return words * (8 + 64 * 2); }
    [[nodiscard]] std::atomic<std::uint64_t>& live(std::size_t word) const noexcept {
      return reinterpret_cast<std::atomic<std::uint64_t>*>(const_cast<plane_row*>(this))[word];
    }
    [[nodiscard]] std::atomic<std::uint16_t>& holder_of(std::size_t words, std::size_t member) const noexcept {
      auto* const behind = reinterpret_cast<std::atomic<std::uint64_t>*>(const_cast<plane_row*>(this)) + words;
      return reinterpret_cast<std::atomic<std::uint16_t>*>(behind)[member];
    }
  };
  template <class T>
  using counted_vector = std::vector<T, budget_allocator<T>>;

  [[nodiscard]] static std::uint64_t bit(std::uint32_t member) noexcept { return std::uint64_t{1} << (member % 64); }
  [[nodiscard]] std::uint64_t hash_of(std::string_view pod, std::uint16_t model) const noexcept;
  [[nodiscard]] std::expected<std::uint32_t, holder_refusal> add_member(const holder_name& name) noexcept;
  [[nodiscard]] std::expected<std::uint8_t, holder_refusal> free_plane(holder_kind kind, std::uint32_t member) noexcept;
  [[nodiscard]] std::expected<holder, holder_refusal> free_number() noexcept;
  void drop_member(std::uint32_t number) noexcept;

  retirement_list& retired_;
  std::uint64_t seed_;
  std::size_t words_;
  chunked_array<holder_state> states_;
  chunked_array<std::atomic<pod_rank*>> members_;
  number_table member_names_;
  std::atomic<std::uint32_t> member_bound_{0};
  std::atomic<std::uint32_t> rank_bound_{0};  ///< ranks are below this
  std::vector<mark_word, budget_allocator<mark_word>> marks_;
  std::atomic<std::uint32_t> degraded_count_{0};
  std::uint32_t holder_bound_ = 1;
  std::array<std::atomic<plane_row*>, most_planes> planes_{};
  std::array<holder_kind, most_planes> plane_kinds_{};
  std::atomic<std::size_t> plane_count_{0};
  std::array<std::array<char, 32>, most_media> media_{};
  std::atomic<std::size_t> media_count_{0};
  counted_vector<holder> dead_;
  counted_vector<holder> free_holders_;
  counted_vector<std::uint32_t> free_members_;
};

}  // namespace cenote::indexer
