// The figures of a manager: for /metrics, for GetMetrics, and for /status.
#pragma once

#include <string>

#include "services/manager/service/call_counts.hpp"
#include "services/manager/service/manager_writer.hpp"
#include "services/manager/service/served_view.hpp"
#include "services/manager/service/usage_report.hpp"
#include "transport/http/metric_families.hpp"

namespace cenote::manager {

/// All that a page shows. Everything outlives it.
struct page_sources {
  const manager_figures& figures;
  const usage_report& usage;
  const call_counts& calls;
  const served_view& view;
  std::uint64_t dropped_lines = 0;  ///< of the trace
};

/// All metrics. Of instances the first 4,096 have series of their own.
[[nodiscard]] http::metric_families metrics_of(const page_sources& sources);

/// The state as one JSON object: groups, instances, storages, journal, figures. No secrets stand in it.
void append_status(const page_sources& sources, std::string& out);

}  // namespace cenote::manager
