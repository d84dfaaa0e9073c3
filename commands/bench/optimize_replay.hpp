// Plans of the optimizer beside replays of their traces.
#pragma once

#include <string>

#include "commands/bench/report.hpp"
#include "core/error.hpp"

namespace cenote::bench::optimize_replay {

/// Plans for three made workloads, DRAM alone and over NVMe, each replayed through a node: how far hits (points) and
/// times to first token (percent) are apart. Files lie in `directory`. Errors: `system`, and those of files.
[[nodiscard]] result<void> measure_plans(const std::string& directory, report& out);

}  // namespace cenote::bench::optimize_replay
