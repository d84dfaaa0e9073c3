// What a test and a process of network_peer know of each other.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "core/random_number.hpp"
#include "transport/peer/network.hpp"

namespace cenote::testing {

/// Of one link alone.
inline peer::ticket new_ticket() {
  peer::ticket proof{};
  const std::uint64_t number = random_number();
  std::memcpy(proof.data(), &number, sizeof number);
  return proof;
}

inline std::vector<std::byte> frame_of(const peer::ticket& proof) {
  return {proof.begin(), proof.end()};
}

inline std::optional<peer::ticket> ticket_in(std::span<const std::byte> frame) {
  peer::ticket proof{};
  if (frame.size() != proof.size()) return std::nullopt;
  std::ranges::copy(frame, proof.begin());
  return proof;
}

inline std::vector<std::byte> block_pattern(std::size_t size) {
  std::vector<std::byte> all(size);
  for (std::size_t i = 0; i < size; ++i) all[i] = static_cast<std::byte>((i * 2654435761U + size) >> 11U);
  return all;
}

}  // namespace cenote::testing
