// A made trace for what reads files or identities.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "simulation/trace.hpp"

namespace cenote::bench {

/// Writes `trace` in the form of Mooncake's. Errors: system.
[[nodiscard]] result<void> write_lines(const simulation::trace& trace, const std::string& path);

/// The identities of all blocks of all requests, one after the other.
[[nodiscard]] std::vector<std::uint64_t> identities_of(const simulation::trace& trace);

}  // namespace cenote::bench
