// The rules for groups of instances.
#pragma once

#include <cstdint>

#include "services/manager/registry/messages.hpp"
#include "services/manager/registry/terms.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// Whether a group without candidates is taken: the removal of a storage may leave one.
enum class candidate_rule : std::uint8_t { needed, optional };

/// The terms of a group, whose candidates are looked up by the caller.
/// Refused: unsupported for strategies of migration; invalid_argument with all fields that are wrong.
[[nodiscard]] rpc_outcome<group_terms> make_group_terms(const proto::admin::InstanceGroup& group, candidate_rule rule);

}  // namespace cenote::manager
