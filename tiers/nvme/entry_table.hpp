// The blocks of the NVMe tier, by key, in as little memory as can be.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "core/block_key.hpp"
#include "core/time_types.hpp"

namespace cenote::nvme {

/// One block on a path.
struct block_entry {
  std::uint64_t key_hi = 0;
  std::uint64_t key_lo = 0;
  std::uint64_t checksum = 0;  ///< of its bytes, mixed with its full key
  std::uint32_t sector = 0;    ///< where it starts in the path's data file
  std::uint32_t sectors = 0;   ///< its length; 0: no block
  wall_time touch{};           ///< last use
  std::uint16_t instance = 0;  ///< number in the tier's list of instances
  std::uint8_t path = 0;
  std::uint8_t readers = 0;  ///< reads under way, at most 255

  [[nodiscard]] block_key key() const noexcept { return {key_hi, key_lo}; }
};
static_assert(sizeof(block_entry) == 40);

/// Open addressing over entry numbers, which stay the same for an entry's life: policies and reads name them. Not
/// thread-safe.
class entry_table {
 public:
  [[nodiscard]] std::optional<std::uint32_t> find(std::uint16_t instance, const block_key& key) const noexcept;
  /// The key is not there yet.
  std::uint32_t add(const block_entry& entry);
  void erase(std::uint32_t number);

  [[nodiscard]] block_entry& operator[](std::uint32_t number) noexcept { return entries_[number]; }
  [[nodiscard]] const block_entry& operator[](std::uint32_t number) const noexcept { return entries_[number]; }
  [[nodiscard]] std::uint64_t size() const noexcept { return live_; }
  /// Numbers are below this.
  [[nodiscard]] std::uint32_t end() const noexcept { return static_cast<std::uint32_t>(entries_.size()); }

 private:
  static constexpr std::uint32_t nothing = ~std::uint32_t{0};

  [[nodiscard]] std::size_t home(std::uint16_t instance, std::uint64_t key_lo) const noexcept;
  void grow();
  void place(std::uint32_t number) noexcept;

  std::deque<block_entry> entries_;  // grows without moving, and without twice the memory for a moment
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> slots_;  ///< entry number, or nothing
  std::uint64_t live_ = 0;
};

}  // namespace cenote::nvme
