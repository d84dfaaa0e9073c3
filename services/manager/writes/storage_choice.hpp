// The storage that takes a new extent.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "services/manager/writes/manager_state.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// The storages that a group's new blocks may go to, in the order of its preference. Errors: io_error (none is usable).
[[nodiscard]] rpc_outcome<std::vector<std::uint8_t>> writable_storages(const manager_state& state,
                                                                       const group_usage& group);

/// Charges `bytes` to the instance, its group, and to the first of these storages that has room for them, in itself and
/// in its type. Errors: reach_max_entity_capacity; nothing is charged then, and the group's reclaimer gets what is
/// missing.
[[nodiscard]] rpc_outcome<std::uint8_t> reserve_bytes(manager_state& state, instance_state& instance,
                                                      const std::vector<std::uint8_t>& storages, std::int64_t bytes);

}  // namespace cenote::manager
