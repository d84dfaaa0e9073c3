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

/// "chat=60,code=1k,rag=0". Refused is a name that stands there twice, and what is no number of blocks.
[[nodiscard]] result<std::vector<instance_quota>> parse_quotas(std::string_view text);

/// The quota of each of the parts. Refused are names that the trace has not, with the nearest one that it has, and
/// instances without a quota (invalid_argument).
[[nodiscard]] result<std::vector<std::uint32_t>> quotas_of(const std::vector<instance_quota>& quotas,
                                                           const read_trace& read,
                                                           const simulation::instance_parts& parts);

/// Refuses more instances than an answer could show (limit_exceeded).
[[nodiscard]] result<void> check_by_instance(const simulation::instance_parts& parts);

}  // namespace cenote::optimize
