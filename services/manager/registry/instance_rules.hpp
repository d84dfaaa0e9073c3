// The rules for instances.
#pragma once

#include "services/manager/registry/messages.hpp"
#include "services/manager/registry/terms.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// The instance that a registration means, with spec groups and the names in them sorted and each there once.
[[nodiscard]] proto::InstanceInfo make_instance_info(const proto::RegisterInstanceRequest& request);

/// The registration that would lead to `info`.
[[nodiscard]] proto::RegisterInstanceRequest make_registration(const proto::InstanceInfo& info);

/// The terms of an instance; its number is 0. Refused: invalid_argument with all fields that are wrong.
[[nodiscard]] rpc_outcome<instance_terms> make_instance_terms(const proto::InstanceInfo& info);

}  // namespace cenote::manager
