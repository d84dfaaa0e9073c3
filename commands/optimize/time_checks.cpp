#include "commands/optimize/time_checks.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace cenote::optimize {

result<void> check_policy_times(bool has_times, std::span<const std::string> policies) {
  const auto found = std::ranges::find_if(policies, [](const std::string& each) { return each.starts_with("tblru"); });
  if (has_times || found == policies.end()) return {};
  return fail(error_code::malformed,
              fmt::format("{} goes by the times between requests, and `timestamp` is missing in all of this trace, or "
                          "is the same in all; other policies need none",
                          *found));
}

result<void> check_arrivals(const simulation::trace& requests, double speed) {
  if (speed <= 0 || requests.has_times()) return {};
  return fail(
      error_code::malformed,
      "waits follow from the times of requests, and `timestamp` is missing in all of this trace, or is the same "
      "in all; --speed max lets all come at once");
}

}  // namespace cenote::optimize
