// What a store says of itself.
#pragma once

#include "tiers/dram/types.hpp"

namespace cenote::dram {

struct parts;

[[nodiscard]] store_status status_of(const parts& of, coarse_time now);

}  // namespace cenote::dram
