// The rules for groups of instances.
#pragma once

#include "services/manager/registry/messages.hpp"
#include "services/manager/registry/terms.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// The terms of a group, whose candidates are looked up by the caller.
/// Refused: unsupported for strategies of migration; invalid_argument with all fields that are wrong.
[[nodiscard]] rpc_outcome<group_terms> make_group_terms(const proto::admin::InstanceGroup& group);

}  // namespace cenote::manager
