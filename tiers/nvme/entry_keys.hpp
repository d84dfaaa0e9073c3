// Full keys by number, which events name blocks by: the tier itself needs 16 bytes of a key only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "core/block_key.hpp"

namespace cenote::nvme {

struct entry_key {
  std::uint32_t group = 0;
  full_key full;
};

/// 34 bytes a number; what a key has beyond 32 bytes lies apart. Not thread-safe.
class entry_keys {
 public:
  /// `group` is below max_groups.
  void set(std::uint32_t number, std::uint32_t group, const full_key& full);
  [[nodiscard]] std::optional<entry_key> find(std::uint32_t number) const noexcept;
  void erase(std::uint32_t number) noexcept;
  void clear() noexcept;

 private:
  static constexpr std::size_t half = max_key_bytes / 2;
  using key_half = std::array<std::byte, half>;
  struct head {
    key_half bytes{};
    std::uint8_t size = 0;  ///< of the whole key; 0: none
    std::uint8_t group = 0;
  };
  static_assert(sizeof(head) == half + 2);

  std::deque<head> heads_;  // grows without moving
  std::unordered_map<std::uint32_t, key_half> tails_;
};

}  // namespace cenote::nvme
