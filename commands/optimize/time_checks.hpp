// Refusal of figures that need times, for traces without them.
#pragma once

#include <string_view>

#include "core/error.hpp"
#include "simulation/trace.hpp"

namespace cenote::optimize {

/// Refuses a policy whose order follows from times, where the trace has none (malformed).
[[nodiscard]] result<void> check_policy_times(bool has_times, std::string_view policy);

/// Refuses a trace without times (malformed) unless `speed` is 0: the waits of its requests are not known.
[[nodiscard]] result<void> check_arrivals(const simulation::trace& requests, double speed);

}  // namespace cenote::optimize
