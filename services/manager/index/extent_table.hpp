// The extents that locations lie in, by small numbers.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "services/manager/index/checksum_runs.hpp"
#include "services/manager/index/line_arena.hpp"
#include "services/manager/index/stable_array.hpp"

namespace cenote::manager {

/// All that one write session was granted in one storage.
struct extent_info {
  std::uint64_t number = 0;    ///< of the fleet; never used twice
  std::uint32_t wrote_at = 0;  ///< seconds since 1970; 0: not finished
  std::uint8_t storage = 0;
  const checksum_word* checksums = nullptr;  ///< null: none were given

  bool operator==(const extent_info&) const = default;
};

/// Extents in memory that never moves; numbers of erased ones are used again. One thread adds, erases and sets, any
/// thread reads. Each field is stored with release and loaded with acquire order, so that a reader that sees the next
/// owner of a number also sees that the locations of the one before are gone (record_reader.hpp).
class extent_table {
 public:
  static constexpr std::uint32_t most_extents = 0xffff'fffe;

  explicit extent_table(line_arena& arena) noexcept : runs_(arena), entries_(arena) {}

  /// Nothing if most_extents are there. Throws std::bad_alloc.
  [[nodiscard]] std::optional<std::uint32_t> add(const extent_info& info);
  /// Frees the number. No record may have a location in it any more.
  void erase(std::uint32_t extent) noexcept;
  /// Of an extent that nothing is SERVING in yet.
  void set_storage(std::uint32_t extent, std::uint8_t storage) noexcept {
    entries_[extent].storage.store(storage, std::memory_order_release);
  }
  /// Of an extent that has none, and that nothing is SERVING in yet. Throws std::bad_alloc.
  void set_checksums(std::uint32_t extent, const block_checksums& checksums);
  /// The writer's. Of an extent of so many blocks; empty: none were given.
  [[nodiscard]] block_checksums checksums(std::uint32_t extent, std::size_t blocks) const;
  void set_wrote_at(std::uint32_t extent, std::uint32_t seconds) noexcept {
    entries_[extent].wrote_at.store(seconds, std::memory_order_release);
  }

  /// Any thread, for a number that a location has.
  [[nodiscard]] extent_info get(std::uint32_t extent) const noexcept {
    const extent_entry& entry = entries_[extent];
    return {.number = entry.number.load(std::memory_order_acquire),
            .wrote_at = entry.wrote_at.load(std::memory_order_acquire),
            .storage = entry.storage.load(std::memory_order_acquire),
            .checksums = entry.checksums.load(std::memory_order_acquire)};
  }

  [[nodiscard]] std::size_t size() const noexcept { return bound_ - unused_.size(); }
  /// Beside those of the arena.
  [[nodiscard]] std::size_t bytes() const noexcept {
    return unused_.capacity() * sizeof(std::uint32_t) + runs_.bytes();
  }

 private:
  struct extent_entry {
    std::atomic<std::uint64_t> number{0};
    std::atomic<std::uint32_t> wrote_at{0};
    std::atomic<std::uint8_t> storage{0};
    std::atomic<checksum_word*> checksums{nullptr};
  };
  static_assert(sizeof(extent_entry) == 24);

  checksum_runs runs_;

  stable_array<extent_entry> entries_;
  alignas(64) std::vector<std::uint32_t> unused_{};  ///< from here on in lines that readers do not need
  std::uint32_t bound_ = 0;
};

}  // namespace cenote::manager
