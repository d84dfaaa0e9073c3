// Numbers for pairs: a block behind another one, a key in an instance.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>

#include "core/key_sample.hpp"
#include "core/random_number.hpp"
#include "simulation/formats/format.hpp"

namespace cenote::formats {

/// Numbers pairs from 1 as they first come, so that two pairs have one number only if they are equal; or hashes them.
/// Not thread-safe.
class key_numbers {
 public:
  [[nodiscard]] std::uint64_t number(std::uint64_t parent, std::uint64_t key, key_naming naming) {
    if (naming == key_naming::hashed) return mixed_bits(mixed_bits(parent + pair_salt) + key);
    return numbers_.try_emplace({parent, key}, numbers_.size() + 1).first->second;
  }

 private:
  static constexpr std::uint64_t pair_salt = 0x3c6ef372fe94f82bULL;
  struct pair {
    std::uint64_t parent = 0;
    std::uint64_t key = 0;
    bool operator==(const pair&) const = default;
  };
  struct pair_hash {
    pair_hash() : salt(random_number()) {}
    std::size_t operator()(const pair& value) const noexcept {
      return mixed_bits(mixed_bits(value.parent ^ salt) ^ value.key);
    }

    std::uint64_t salt;  ///< so that keys that all have the same place cannot be made
  };

  std::unordered_map<pair, std::uint64_t, pair_hash> numbers_;
};

}  // namespace cenote::formats
