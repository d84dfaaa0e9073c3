// The list of a group's storages that a client gets when it registers.
#pragma once

#include <bitset>
#include <string>

#include "services/manager/registry/registry.hpp"

namespace cenote::manager {

/// Storages by number that may be read and written now.
using storage_set = std::bitset<most_storages>;

/// A JSON list of a group's candidates that exist, in their order, as clients of the original read it:
/// [{"type":"file","is_available":true,"global_unique_name":"n1","storage_spec":{"root_path":"/mnt/kv",…}}].
/// Types are file, hf3fs, mooncake, redis and cenote. Thread-safe.
[[nodiscard]] std::string storage_configs(const manager_registry& source, const group_terms& group,
                                          const storage_set& available);

}  // namespace cenote::manager
