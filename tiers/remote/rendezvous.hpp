// Which of several servers a block belongs to: rendezvous hashing, so that one server more or less moves its share
// only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/block_key.hpp"
#include "core/checksum.hpp"
#include "core/instance_identity.hpp"

namespace cenote::remote {

/// What a server's name counts as below: the same on every node.
[[nodiscard]] inline std::uint64_t seed_of(std::string_view server) noexcept {
  return checksum_of(server.data(), server.size());
}

/// The server of highest random weight for a block of an instance (Thaler and Ravishankar, 1998). `seeds` is not empty.
[[nodiscard]] inline std::size_t home_of(instance_identity identity, const block_key& key,
                                         std::span<const std::uint64_t> seeds) noexcept {
  std::size_t best = 0;
  std::uint64_t most = 0;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    const std::uint64_t weight = checksum_of(&key, sizeof(key), seeds[i] ^ identity.spread());
    if (i != 0 && weight <= most) continue;
    best = i;
    most = weight;
  }
  return best;
}

}  // namespace cenote::remote
