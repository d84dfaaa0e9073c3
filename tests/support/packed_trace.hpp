// The traces in tests/data.
#pragma once

#include <filesystem>

#include "simulation/trace.hpp"

namespace cenote::testing {

/// Reads a trace in the form of tests/data/pack_trace.py; throws std::runtime_error when it cannot.
[[nodiscard]] simulation::trace load_packed_trace(const std::filesystem::path& path);

}  // namespace cenote::testing
