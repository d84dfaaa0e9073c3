// Where a block lies in its storage, for deletions.
#pragma once

#include <cstdint>
#include <vector>

#include "services/manager/storages/storage_backend.hpp"
#include "services/manager/writes/manager_state.hpp"

namespace cenote::manager {

struct block_site {
  const instance_state& instance;
  const storage_terms& storage;
  const extent_state& extent;
  std::uint32_t position = 0;
};

/// Appends an item for each spec of a block.
void add_removal_items(const block_site& place, removal_scope scope, std::vector<removal_item>& items);

}  // namespace cenote::manager
