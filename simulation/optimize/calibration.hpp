// The prefill model of a real engine, from times to first token that were measured on it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/error.hpp"

#include "simulation/optimize/cost_model.hpp"

namespace cenote::simulation {

struct measured_prefill {
  std::uint64_t input = 0;   ///< tokens, at least 1
  std::uint64_t cached = 0;  ///< of these, at most all
  double ttft = 0;           ///< seconds, above 0
};

struct calibration {
  prefill_model model;
  double median_error = 0;  ///< |model − measured| / measured
  double p90_error = 0;
  std::size_t worst = 0;  ///< the row with the largest error
};

/// The fewest rows that calibrate() takes: as many as it looks for figures.
inline constexpr std::size_t fewest_rows = 3;

/// Least squares of the relative error for the constant, 1 / rate and 1 / (2 · pivot · rate), none of them negative
/// (C. L. Lawson, R. J. Hanson, "Solving least squares problems", 1974, chapter 23: with three unknowns each set of
/// those that are not 0 is tried). With `pivot` that one is given. Rows of equal lengths cannot separate all three: the
/// fewest that explain them as well are taken. Errors: malformed where rows are too few, or do not grow with the
/// tokens that are computed.
[[nodiscard]] result<calibration> calibrate(std::span<const measured_prefill> rows, std::optional<double> pivot = {});

}  // namespace cenote::simulation
