// One subscription to what a tier holds: blocks that were stored, moved, removed, and instances that were cleared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/block_key.hpp"
#include "core/enum_names.hpp"

namespace cenote {

enum class tier_change_kind : std::uint8_t {
  stored,   ///< the block is found in this tier from now on
  removed,  ///< … no more
  cleared,  ///< no block of the instance is found here any more
  ended,    ///< the same, and the instance's number never comes again
};
CENOTE_ENUM_NAMES(tier_change_kind, stored, removed, cleared, ended);

struct tier_change {
  tier_change_kind kind = tier_change_kind::stored;
  std::uint32_t instance = 0;  ///< the DRAM tier's number
  std::uint32_t group = 0;     ///< … and the key: nothing when a whole instance is meant
  full_key key{};
};

/// Where a tier has a block: a number that no other block there has meanwhile.
using block_place = std::uint64_t;
inline constexpr block_place end_of_places = std::numeric_limits<block_place>::max();

/// An instance that changes name.
struct change_subject {
  std::uint32_t instance = 0;
  std::string model;
  std::uint32_t groups = 1;
};

/// Changes for one reader. Carried out in order, runs leave it with the tier's own list as far as the walk has
/// come.
struct change_run {
  bool begins_anew = false;              ///< whatever was read before is void: the first run, or changes were lost
  bool is_complete = false;              ///< the walk is through: after this run the reader knows all that is here
  std::vector<change_subject> subjects;  ///< instances that `changes` name for the first time
  std::vector<tier_change> changes;      ///< those of an instance without a subject mean nothing: it has ended
};

/// The tier, as walks see it.
class block_listing {
 public:
  block_listing() = default;
  block_listing(const block_listing&) = delete;
  block_listing& operator=(const block_listing&) = delete;
  virtual ~block_listing() = default;

  /// Appends what is at the places from `first` on, after a look at about `most` of them. Returns the place to go on
  /// at.
  virtual block_place list(block_place first, std::size_t steps, std::vector<tier_change>& blocks) const = 0;
  /// Nothing for an instance that is not here.
  [[nodiscard]] virtual std::optional<change_subject> subject_of(std::uint32_t instance) const = 0;
};

using change_reader = std::uint64_t;

/// The readers of a tier and what waits for each. Belongs to the tier's thread.
class block_changes {
 public:
  static constexpr std::size_t most_readers = 8;
  static constexpr std::size_t usual_waiting = std::size_t{1} << 16;  ///< some 5 MB a reader

  explicit block_changes(std::size_t most_waiting = usual_waiting) noexcept : most_waiting_(most_waiting) {}

  [[nodiscard]] bool has_readers() const noexcept { return !readers_.empty(); }

  // ---- the tier
  void stored(block_place place, std::uint32_t instance, std::uint32_t group, const full_key& key) {
    if (has_readers()) [[unlikely]]
      note(place, {tier_change_kind::stored, instance, group, key});
  }
  void removed(block_place place, std::uint32_t instance, std::uint32_t group, const full_key& key) {
    if (has_readers() && !is_clearing_) [[unlikely]]
      note(place, {tier_change_kind::removed, instance, group, key});
  }
  /// The block is at another place now.
  void moved(block_place origin, block_place target, std::uint32_t instance, std::uint32_t group, const full_key& key) {
    if (has_readers()) [[unlikely]]
      note_move(origin, target, {tier_change_kind::stored, instance, group, key});
  }
  /// Every block of the instance goes, or has gone.
  void end_instance(std::uint32_t instance) {
    if (has_readers()) [[unlikely]]
      note_all({tier_change_kind::ended, instance});
  }

  /// While it lives, all blocks of these instances go, and nothing else does or comes: one change an instance names it.
  class clear_guard {
   public:
    clear_guard(block_changes& changes, std::span<const std::uint32_t> instances) : changes_(changes) {
      for (const std::uint32_t each : instances) changes_.note_all({tier_change_kind::cleared, each});
      changes_.is_clearing_ = true;
    }
    clear_guard(const clear_guard&) = delete;
    clear_guard& operator=(const clear_guard&) = delete;
    ~clear_guard() { changes_.is_clearing_ = false; }

   private:
    block_changes& changes_;
  };

  // ---- readers
  /// What there is for the reader, which is new if its number is; `most` bounds the steps of its walk. Nothing: there
  /// are most_readers others.
  [[nodiscard]] std::optional<change_run> read(change_reader reader, std::size_t steps, const block_listing& tier);
  void close(change_reader reader) noexcept { readers_.erase(reader); }
  /// `ring` is called on the tier's thread when a change waits for a reader that had none.
  void set_alarm(std::function<void()> ring) { ring_ = std::move(ring); }

 private:
  struct reader_state {
    block_place next = 0;              ///< of its walk: it gets changes below
    bool begins_anew = true;           ///< its next run does
    std::vector<tier_change> waiting;  ///< at most most_waiting_
    std::set<std::uint32_t> named;     ///< instances whose subjects it has
  };

  void note(block_place place, const tier_change& change);
  void note_move(block_place origin, block_place target, tier_change change);
  void note_all(const tier_change& change);
  void add(reader_state& reader, const tier_change& change);
  static void name_subjects(reader_state& reader, change_run& run, const block_listing& tier);

  std::size_t most_waiting_;
  std::map<change_reader, reader_state> readers_;
  bool is_clearing_ = false;
  std::function<void()> ring_;
};

}  // namespace cenote
