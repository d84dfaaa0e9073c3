// What the remote tier says of itself.
#pragma once

#include <string>
#include <vector>

#include "actors/tier_report.hpp"
#include "tiers/remote/store.hpp"

namespace cenote {

struct remote_backend_report {
  std::string name;
  remote::backend_status state;
  remote::removal_figures removals{};
};

/// Puts and gets are timed from the hand-over to a backend until it answered.
struct remote_report final : tier_report {
  remote_report() : tier_report("remote") {}

  remote::store_gauges now;
  remote::store_counters totals;
  std::vector<remote_backend_report> backends;
  histogram gets, puts;  ///< nanoseconds

  /// Makes the parts that every tier's report has of the members above.
  void describe();
};

}  // namespace cenote
