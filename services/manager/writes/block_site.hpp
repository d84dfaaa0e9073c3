// Where a block lies in its storage, for deletions.
#pragma once

#include <cstdint>
#include <vector>

#include "services/manager/storages/storage_backend.hpp"
#include "services/manager/writes/manager_state.hpp"
#include "transport/manager/file_uri.hpp"

namespace cenote::manager {

struct block_site {
  const instance_state& instance;
  const storage_terms& storage;
  const extent_state& extent;
  std::uint32_t position = 0;
};

/// Writes the addresses of a spec of an instance in a storage.
[[nodiscard]] uri_writer writer_of(const storage_terms& storage, const instance_terms& instance,
                                   const spec_terms& spec);

/// The address of the block of a key.
[[nodiscard]] constexpr block_address address_of(std::uint64_t extent, std::uint32_t position,
                                                 const cache_key& key) noexcept {
  return {.extent = extent, .position = position, .key_low = key.low, .key_high = key.high};
}

/// Appends an item for each spec of a block.
void add_removal_items(const block_site& place, removal_scope scope, std::vector<removal_item>& items);

}  // namespace cenote::manager
