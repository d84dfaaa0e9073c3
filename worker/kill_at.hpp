// debug.kill_at: this worker dies, or a part of it hangs, behind a point of its sources.
#pragma once

#include <cstdint>

#include "config/node_config.hpp"

namespace cenote {

/// What `debug` says of the node's `epoch`-th worker (from 1), for the whole process. Once, before anything is stored.
void install_kill(const config::debug_section& debug, std::uint64_t epoch);

}  // namespace cenote
