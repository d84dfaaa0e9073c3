// What this node knows of the epochs of instances on servers: kept in a file, so that nobody brings back what was
// cleared.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.hpp"
#include "core/instance_identity.hpp"
#include "core/unique_fd.hpp"

namespace cenote::remote {

/// Stands in each key of a block, behind the instance's identity: old keys are not asked for any more. Unique,
/// increasing; 0: none.
///
///     below 2^52          of an instance that was never cleared: microseconds of the calendar, or one more than
///     other high bits | 22 low bits   high: the last clear, from the calendar's nanoseconds, above all that was seen
///                             low: grows when a server had lost the epoch and was given one anew
///
/// Nodes of before went by 32 low bits: what they made anew may count as a clear, and then clears more than it has to.
using epoch = std::uint64_t;

/// Whether the two are epochs before and after a clear, and not only of a server that had forgotten.
[[nodiscard]] bool differ_by_clear(epoch one, epoch other) noexcept;

/// Numbers from here on are none that a node makes.
inline constexpr epoch epoch_limit = epoch{1} << 63;

/// As it stands in keys and on servers: 16 hex digits.
[[nodiscard]] std::string epoch_text(epoch number);
/// 0 when `text` is no epoch.
[[nodiscard]] epoch epoch_in(std::string_view text) noexcept;

/// An epoch as it stands on a server: of 16 digits, as are the clears behind it.
///
/// A server that falls back to an older copy of its data loses the latest clears, and other nodes may have an epoch set
/// there before one comes that knows of them. Whether the maker of an epoch knew of a clear stands in the epoch.
struct epoch_record {
  static constexpr std::size_t most_clears = 7;

  epoch number = 0;                ///< 0: none
  std::vector<epoch> clears = {};  ///< of earlier clears whatever epoch each had, latest first

  /// Whether the maker of this epoch knew of the clear of `other`; as good as that: of so many later ones that there is
  /// no place for it.
  [[nodiscard]] bool covers(epoch other) const noexcept;
  /// Adds the clears that are known with another record.
  void add(const epoch_record& other);

 private:
  void insert(epoch clear);
};
[[nodiscard]] std::string record_text(const epoch_record& record);
/// `now`: nanoseconds of the calendar. The number is 0 when `text` is no such record, or of a time so far ahead that no
/// clock is: one such number would leave no room for all that come.
[[nodiscard]] epoch_record record_in(std::string_view text, epoch now);

/// The epochs of a server. In the file: magic, version, floor, count, entries, XXH3-64 of all that. A lock beside it
/// keeps a second process from writing over what this one notes. Not thread-safe.
class epoch_book {
 public:
  struct place {
    std::uint64_t server = 0;
    instance_identity identity{};
    auto operator<=>(const place&) const = default;
  };
  /// More entries than that: the one of the lowest epoch goes, and what is below it counts as older than we know.
  static constexpr std::size_t most_entries = 16384;

  /// Reads the file; without one the book is empty. One that is damaged, or of another version, counts as a book in
  /// which every instance was cleared at `now`: what was put before is not found again. Errors: `system` when the file
  /// cannot be read, `invalid_config` when somebody else has it for longer than `patience`.
  [[nodiscard]] static result<epoch_book> open(std::filesystem::path file, epoch now,
                                               std::chrono::milliseconds patience = std::chrono::seconds(5));

  /// The highest epoch that we know of; what a server has must not be older.
  [[nodiscard]] epoch known(const place& where) const noexcept;
  /// Instances whose clear the server has not heard of yet.
  [[nodiscard]] std::vector<instance_identity> pending_on(std::uint64_t server) const;
  /// Some server has not heard of a clear yet.
  [[nodiscard]] bool has_pending() const noexcept { return pending_ > 0; }
  /// A clear that the server has not heard of yet.
  [[nodiscard]] bool is_pending(const place& where) const noexcept;
  /// An epoch above all that we know of and above `seen`: that of a clear if one is to be carried out. `now`:
  /// nanoseconds of the calendar.
  [[nodiscard]] epoch next(const place& where, epoch seen, epoch now) const noexcept;
  /// The same with the clears that this node knows of, and those that the server has.
  [[nodiscard]] epoch_record next_record(const place& location, const epoch_record& current, epoch now) const;
  /// Remembers, in memory, an epoch that this node offers a server: its answer may be lost.
  void propose(const place& location, epoch number);
  /// Whether an epoch of the server is that of a clear that this node neither made nor knows.
  [[nodiscard]] bool is_clear_of_another(const place& location, epoch number) const noexcept;
  /// Another node cleared the instance, and this node's own tiers have not yet.
  [[nodiscard]] bool is_uncleared_above(const place& location) const noexcept;

  /// Notes an epoch that this node made, and writes the file (synced, replaced at once). In memory it is noted also
  /// when that fails.
  [[nodiscard]] result<void> keep(const place& location, const epoch_record& record);
  /// Notes a newer epoch of the server, and whether this node's own tiers have to clear the instance. A maker that did
  /// not know the clear which this node knows of has not cleared for it: that is to be carried out again.
  [[nodiscard]] result<void> adopt(const place& location, const epoch_record& record);
  /// The server has an older epoch: the same if it is that of a clear that this node does not know, which nodes that
  /// know a later one would take for over.
  [[nodiscard]] result<void> look_back(const place& location, epoch number);
  /// The own tiers have cleared it: puts that were on their way are over.
  [[nodiscard]] result<void> keep_cleared_above(const place& location);
  /// Instances of which there is an epoch on the server.
  [[nodiscard]] std::set<instance_identity> known_on(std::uint64_t server) const;
  /// Notes clears to be carried out.
  [[nodiscard]] result<void> keep_pending(std::uint64_t server, const std::set<instance_identity>& identities);
  /// How many clears were noted by this process, its own and others': an epoch that was made before the last of them
  /// does not carry it out, and a put that was asked for before it is over.
  [[nodiscard]] std::uint64_t clears(const place& where) const noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] bool was_damaged() const noexcept { return was_damaged_; }

 private:
  struct entry {
    [[nodiscard]] bool has_clear() const noexcept { return is_pending || repeat != 0; }

    epoch_record record{};
    bool is_confirmed = false;  ///< the record stood on the server
    bool is_pending = false;    ///< an order of this node waits
    epoch repeat = 0;           ///< a clear to be carried out once more, until the server has a record that covers it
    bool is_uncleared_above = false;
    std::uint64_t clears = 0;  ///< not in the file
    epoch proposed = 0;        ///< not in the file
  };

  epoch_book(std::filesystem::path file, unique_fd lock) : file_(std::move(file)), lock_(std::move(lock)) {}
  [[nodiscard]] bool decode(std::string_view bytes);
  [[nodiscard]] result<void> write();
  [[nodiscard]] entry& entry_of(const place& where);
  void set_record(entry& target, const epoch_record& record);
  void set_pending(entry& target, bool is_pending, epoch repeat) noexcept;
  void forget_lowest();

  std::filesystem::path file_;
  unique_fd lock_;
  std::map<place, entry> entries_;
  epoch floor_ = 0;          ///< of what has no entry
  std::size_t pending_ = 0;  ///< entries with a clear to be carried out
  bool was_damaged_ = false;
};

}  // namespace cenote::remote
