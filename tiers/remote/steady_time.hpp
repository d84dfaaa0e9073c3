// The clock of deadlines and pauses, that of connections to servers, too; and how the machine's clock is set against
// it.
#pragma once

#include "core/time_types.hpp"
#include "transport/redis/steady_time.hpp"

namespace cenote::remote {

using redis::steady_time;

/// Two clocks, the second one read after the first.
struct clock_reading {
  steady_time steady{};
  boot_time boot{};
};

/// A time at which `event` was still to come; boot_time{}: long ago. Tenths are cut off, and a machine that sleeps
/// moves the boot clock alone.
[[nodiscard]] inline steady_time time_before(boot_time event, const clock_reading& now) noexcept {
  if (event == boot_time{}) return steady_time::min();
  return now.steady - (age_of(event, now.boot) + tenths(1));
}

}  // namespace cenote::remote
