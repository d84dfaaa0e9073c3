#include "commands/optimize/time_checks.hpp"

#include <fmt/format.h>

namespace cenote::optimize {

result<void> check_policy_times(bool has_times, std::string_view policy) {
  if (has_times || !policy.starts_with("tblru")) return {};
  return fail(error_code::malformed,
              fmt::format("{} goes by the times between requests, and `timestamp` is missing in all of this trace, or "
                          "is the same in all; other policies need none",
                          policy));
}

result<void> check_arrivals(const simulation::trace& requests, double speed) {
  if (speed <= 0 || requests.has_times()) return {};
  return fail(
      error_code::malformed,
      "waits follow from the times of requests, and `timestamp` is missing in all of this trace, or is the same "
      "in all; --speed max lets all come at once");
}

}  // namespace cenote::optimize
