// The remote tier as a worker makes it: actor and backends.
#pragma once

#include "actors/lower_tier_host.hpp"

namespace cenote {

[[nodiscard]] lower_tier_kind remote_kind();

}  // namespace cenote
