// The questions and answers of lookups.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "services/manager/index/location.hpp"

namespace cenote::manager {

inline constexpr std::uint32_t no_record = 0xffff'ffff;
inline constexpr std::uint32_t no_checksums = 0xffff'ffff;

/// Specs of a key that lie in one place.
struct found_part {
  std::uint64_t extent = 0;  ///< its number, not that in a table
  std::uint64_t specs = 0;   ///< bit i: the i-th spec of the instance
  std::uint32_t wrote_at = 0;
  std::uint16_t position = 0;
  std::uint8_t storage = 0;
  std::uint32_t checksums = no_checksums;  ///< its first word in the answer's list

  bool operator==(const found_part&) const = default;
};

struct found_key {
  std::uint32_t record = no_record;
  std::uint32_t first_part = 0;
  std::uint32_t parts = 0;  ///< 0: absent

  bool operator==(const found_key&) const = default;
};

/// Keys in the order of the question, each with parts of which no two have a spec in common.
struct lookup_answer {
  std::vector<found_key> keys{};
  std::vector<found_part> parts{};
  std::vector<std::uint64_t> checksums{};  ///< of parts that have some: a mask of specs, and one for each of them

  /// Keeps the memory, for the next question.
  void clear() noexcept {
    keys.clear();
    parts.clear();
    checksums.clear();
  }
};

/// The order in which storages are read.
struct read_order {
  static constexpr std::uint8_t unusable = 255;

  std::array<std::uint8_t, 256> rank{};  ///< by storage; the lowest is read first; 255: not usable
};

/// Specs of the keys of a prefix, beyond a part each.
struct prefix_rule {
  std::uint64_t all = 0;   ///< specs that each key must have
  std::uint64_t last = 0;  ///< specs that the last key must have
};

/// A location in any state, of one of the keys of a question.
struct key_state {
  std::uint32_t key = 0;  ///< its place in the question
  location_state state = location_state::none;
  std::uint8_t storage = 0;
  std::uint16_t position = 0;
  std::uint64_t extent = 0;  ///< its number, not that in a table
  std::uint64_t specs = 0;
  std::uint32_t wrote_at = 0;
  std::vector<std::uint64_t> checksums{};  ///< a mask of specs, and one for each of them; empty: none were given

  bool operator==(const key_state&) const = default;
};

}  // namespace cenote::manager
