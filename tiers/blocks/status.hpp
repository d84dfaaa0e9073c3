// What a store says of itself.
#pragma once

#include "tiers/blocks/types.hpp"

namespace cenote::blocks {

struct parts;

[[nodiscard]] store_status status_of(const parts& parts, boot_time now);

}  // namespace cenote::blocks
