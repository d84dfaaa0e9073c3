// The registry as the writer has it: its storages, groups and instances with what is stored in them.
#pragma once

#include <functional>
#include <memory>

#include "services/manager/writes/manager_state.hpp"

namespace cenote::manager {

/// Makes the worker of a storage; null for types that the manager cannot reach itself.
using worker_factory = std::function<std::unique_ptr<storage_worker>(const storage_terms&)>;

/// Takes over a registry: `state` follows it. Instances that it does not have any more depart: nothing finds them, and
/// they go with their last extent. Indexes begin empty.
void adopt_registry(manager_state& state, const manager_registry& next, const worker_factory& make_worker);

/// The records of an instance's orders are put into new ones, by their last use; needed where a policy has changed.
void rebuild_pools(instance_state& instance);

}  // namespace cenote::manager
