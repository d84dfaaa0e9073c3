// Made-up streams of requests, for what no recorded trace has.
#pragma once

#include <span>
#include <string_view>

#include "core/error.hpp"
#include "simulation/trace.hpp"

namespace cenote::simulation {

/// A number that a workload depends on.
struct workload_parameter {
  std::string_view name;
  double standard = 0;  ///< used when the description does not name it
  double minimum = 0;
  double maximum = 0;
  std::string_view meaning;  ///< with its unit, in a few words
};

struct workload_kind {
  std::string_view name;
  std::string_view meaning;
  std::span<const workload_parameter> parameters;
};

/// All that generate() knows, for help texts.
[[nodiscard]] std::span<const workload_kind> workload_kinds() noexcept;

/// The trace that `description` stands for: KIND or KIND:name=value,name=value, as in `chat:think=30,seed=7`. Lengths
/// and delays are exponentially distributed around their means, which are cut off at eight times the mean; arrivals
/// are a Poisson process. The same description makes the same trace, on any machine with the same C library.
///
/// Refused, with the known ones: unknown kinds and names; values that are no number or out of bounds. Thread-safe.
[[nodiscard]] result<trace> generate(std::string_view description);

}  // namespace cenote::simulation
