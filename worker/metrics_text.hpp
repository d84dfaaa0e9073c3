// What Prometheus reads: the node's report as metrics.
#pragma once

#include <string>

#include "worker/server_context.hpp"

namespace cenote {

/// Prometheus' text format, version 0.0.4. Counters start at 0 with each worker; sizes in bytes, times in seconds.
[[nodiscard]] std::string metrics_text(const node_report& report, const server_context& context,
                                       const server_report& server);

}  // namespace cenote
