// One budget of memory among several services, by what each gains.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace cenote::simulation {

/// The gain of a service with so much memory, both at least 0.
struct gain_point {
  double bytes = 0;
  double gain = 0;
};

/// The smallest concave curve from (0, 0) on that no point is above, by its corners, (0, 0) first: the upper part of
/// their convex hull (A. M. Andrew, Information Processing Letters 9(5), 1979). A curve that falls is cut where it is
/// highest, as memory need not be used.
[[nodiscard]] std::vector<gain_point> concave_hull(std::span<const gain_point> points);

/// The gain with `bytes` on a hull: straight between its corners, constant behind the last one.
[[nodiscard]] double gain_with(std::span<const gain_point> hull, double bytes) noexcept;

/// A piece of a hull between two corners.
struct hull_step {
  std::size_t service = 0;
  double bytes = 0;
  double gain = 0;
};

struct budget_split {
  std::vector<hull_step> steps;  ///< in the order in which they are taken, the steepest first; the last may be cut
  std::vector<double> bytes;     ///< of each service
  double gain = 0;               ///< of all together
};

/// Takes the steepest step that is left until `budget` bytes are given away: the largest gain of all splits, as gains
/// of concave curves never rise. Of equals, the service that stands first.
[[nodiscard]] budget_split split_budget(std::span<const std::vector<gain_point>> hulls, double budget);

}  // namespace cenote::simulation
