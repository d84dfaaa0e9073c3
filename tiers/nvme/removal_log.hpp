// Removals that a catalog could not take, written down in space that is always there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/error.hpp"
#include "tiers/nvme/removal_set.hpp"

namespace cenote::nvme {

/// A set as it lies in a place: | magic | owner | sequence | size | check | the set … |
struct placed_removals {
  removal_set set;
  std::uint64_t owner = 0;     ///< whose it is
  std::uint64_t sequence = 0;  ///< the highest one counts

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// Nothing when there is no whole set of this owner.
  [[nodiscard]] static std::optional<placed_removals> decode(std::span<const std::byte> place, std::uint64_t owner);
};

/// A region of a file that holds one removal_set. There are two places for it, used in turn, so that a write which is
/// cut short leaves the set of before:
///
///     | place 0, 508 KiB | place 1, 508 KiB |
///
/// The file keeps the space (a path's data file, between its superblock and its blocks), so a full disk does not stop
/// it. Not thread-safe.
class removal_log {
 public:
  static constexpr std::uint64_t place_bytes = std::uint64_t{508} << 10;
  static constexpr std::uint64_t bytes = 2 * place_bytes;

  /// `file` outlives the log; `offset` is a multiple of a sector. A set that another `owner` wrote there is none of
  /// ours.
  removal_log(int file, std::uint64_t offset, std::uint64_t owner) noexcept
      : file_(file), offset_(offset), owner_(owner) {}

  /// The last set that was stored as a whole; an empty one when there is none. `system`: it cannot be read.
  [[nodiscard]] result<removal_set> load();
  /// On the disk when it returns. `system`: it is not, and what was there before is.
  [[nodiscard]] result<void> store(const removal_set& set);

 private:
  int file_;
  std::uint64_t offset_;
  std::uint64_t owner_;
  std::uint64_t sequence_ = 0;  ///< of the newest place
};

/// The catalog's sequence number when it was last stored here, in the sector behind the log: a catalog with a smaller
/// one has lost records, removals perhaps among them. Not thread-safe.
class sequence_mark {
 public:
  static constexpr std::uint64_t bytes = 4096;

  /// As removal_log.
  sequence_mark(int file, std::uint64_t offset, std::uint64_t owner) noexcept
      : file_(file), offset_(offset), owner_(owner) {}

  /// 0 when there is none. `system`: it cannot be read.
  [[nodiscard]] result<std::uint64_t> load() const;
  /// Not synced, as an older mark is harmless.
  [[nodiscard]] result<void> store(std::uint64_t sequence) const;

 private:
  int file_;
  std::uint64_t offset_;
  std::uint64_t owner_;
};

}  // namespace cenote::nvme
