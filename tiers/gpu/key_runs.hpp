// Keys as lookups take them: of one width, back to back.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/block_key.hpp"

namespace cenote::gpu {

/// The keys of transfers' blocks.
template <class Blocks>
[[nodiscard]] std::vector<full_key> keys_of(const Blocks& blocks) {
  std::vector<full_key> keys;
  keys.reserve(blocks.size());
  for (const auto& each : blocks) keys.push_back(each.what.full);
  return keys;
}

/// Calls `visit(first, batch)` for each run of keys of one width.
template <class Visit>
void each_run(std::span<const full_key> keys, Visit visit) {
  for (std::size_t first = 0; first < keys.size();) {
    const std::size_t width = keys[first].size;
    std::vector<std::byte> flat;
    std::size_t end = first;
    for (; end < keys.size() && keys[end].size == width; ++end)
      flat.insert(flat.end(), keys[end].view().begin(), keys[end].view().end());
    visit(first, key_batch{flat.data(), end - first, width});
    first = end;
  }
}

}  // namespace cenote::gpu
