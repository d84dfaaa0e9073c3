// The clock of deadlines and pauses: that of connections to servers, too.
#pragma once

#include "transport/redis/steady_time.hpp"

namespace cenote::remote {

using redis::steady_time;

}  // namespace cenote::remote
