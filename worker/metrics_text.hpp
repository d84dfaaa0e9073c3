// What Prometheus reads: the node's report as metrics.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "worker/node_facts.hpp"

namespace cenote {

/// Prometheus' text format, version 0.0.4. Counters start at 0 with each worker; sizes in bytes, times in seconds.
[[nodiscard]] std::string metrics_text(const node_facts& facts);

/// A family of it.
struct metric_description {
  std::string name;
  std::string_view kind;  ///< "counter", "gauge", "histogram"
  std::vector<std::string> labels;
  std::string help;
};

/// The families of metrics_text(), in its order.
[[nodiscard]] std::vector<metric_description> describe_metrics(const node_facts& facts);

}  // namespace cenote
