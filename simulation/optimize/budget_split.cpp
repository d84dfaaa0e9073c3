#include "simulation/optimize/budget_split.hpp"

#include <algorithm>

namespace cenote::simulation {

std::vector<gain_point> concave_hull(std::span<const gain_point> points) {
  std::vector<gain_point> sorted(points.begin(), points.end());
  sorted.push_back({});
  std::ranges::sort(sorted, [](const gain_point& one, const gain_point& other) {
    return one.bytes != other.bytes ? one.bytes < other.bytes : one.gain > other.gain;
  });
  std::vector<gain_point> hull{{}};
  for (const gain_point& each : sorted) {
    if (each.gain <= hull.back().gain || each.bytes <= hull.back().bytes) continue;
    // A corner goes where the way around it rises no less steeply behind it.
    while (hull.size() > 1) {
      const gain_point& last = hull.back();
      const gain_point& previous = hull[hull.size() - 2];
      const double turn = (last.bytes - previous.bytes) * (each.gain - previous.gain) -
                          (each.bytes - previous.bytes) * (last.gain - previous.gain);
      if (turn < 0) break;
      hull.pop_back();
    }
    hull.push_back(each);
  }
  return hull;
}

double gain_with(std::span<const gain_point> hull, double bytes) noexcept {
  for (std::size_t i = 1; i < hull.size(); ++i) {
    if (bytes >= hull[i].bytes) continue;
    const double share = (bytes - hull[i - 1].bytes) / (hull[i].bytes - hull[i - 1].bytes);
    return hull[i - 1].gain + share * (hull[i].gain - hull[i - 1].gain);
  }
  return hull.empty() ? 0 : hull.back().gain;
}

budget_split split_budget(std::span<const std::vector<gain_point>> hulls, double budget) {
  std::vector<hull_step> steps;
  for (std::size_t service = 0; service < hulls.size(); ++service) {
    const auto& hull = hulls[service];
    for (std::size_t i = 1; i < hull.size(); ++i) {
      steps.push_back(
          {.service = service, .bytes = hull[i].bytes - hull[i - 1].bytes, .gain = hull[i].gain - hull[i - 1].gain});
    }
  }
  std::ranges::stable_sort(steps, std::ranges::greater(), [](const hull_step& each) { return each.gain / each.bytes; });
  budget_split split{.steps = {}, .bytes = std::vector<double>(hulls.size())};
  for (hull_step each : steps) {
    const double given = std::min(each.bytes, budget);
    if (given <= 0) break;
    each.gain *= given / each.bytes;
    each.bytes = given;
    budget -= given;
    split.bytes[each.service] += given;
    split.gain += each.gain;
    split.steps.push_back(each);
  }
  return split;
}

}  // namespace cenote::simulation
