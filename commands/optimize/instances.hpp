// Instances with caches of their own: quotas, and the bounds of answers for each instance.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "commands/replay/trace.hpp"
#include "core/error.hpp"
#include "simulation/optimize/instance_parts.hpp"

namespace cenote::optimize {

struct instance_quota {
  std::string name;
  std::uint32_t blocks = 0;
};

/// "chat=60,code+rag=1k". Refused is a name that stands there twice, and no number of blocks.
[[nodiscard]] result<std::vector<instance_quota>> parse_quotas(std::string_view text);

/// The group that each instance of a trace shares a quota with, by number of the instance.
using quota_groups = std::vector<std::uint32_t>;

/// Places in `quotas`, one for each instance. A name with a `+` is that of several instances, which share their quota,
/// unless one is called so. Refused are names that the trace has not, with the nearest one that it has, and instances
/// with two quotas or none (invalid_argument).
[[nodiscard]] result<quota_groups> groups_by_quota(const std::vector<instance_quota>& quotas, const read_trace& read);

/// Refuses more instances than an answer could show (limit_exceeded).
[[nodiscard]] result<void> check_by_instance(const simulation::instance_parts& parts);

}  // namespace cenote::optimize
