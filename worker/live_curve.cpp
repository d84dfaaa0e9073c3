#include "worker/live_curve.hpp"

#include <algorithm>
#include <cmath>
#include <memory>

namespace cenote {

namespace {

constexpr double half_life = 50'000;    // requests
constexpr int points_of_an_octave = 3;  // powers of two of the capacity
constexpr int octaves = 4;              // to either side
constexpr std::uint64_t largest_factor = 4;

}  // namespace

live_curve::live_curve(std::uint64_t capacity)
    : curve_({.largest = std::max<std::uint64_t>(capacity * largest_factor, simulation::sampled_curve::most_sampled),
              .half_life = half_life,
              .salt = 1}) {}

blocks::curve_status live_curve::status(std::uint64_t capacity) const {
  blocks::curve_status all{.requests = curve_.requests(), .capacity = capacity, .block_bytes = 0, .points = {}};
  for (int i = -octaves * points_of_an_octave; i <= octaves * points_of_an_octave; ++i) {
    const double factor = std::exp2(static_cast<double>(i) / points_of_an_octave);
    const auto blocks = static_cast<std::uint64_t>(std::llround(static_cast<double>(capacity) * factor));
    if (!all.points.empty() && all.points.back().capacity >= blocks) continue;
    const auto point = blocks == 0 ? std::nullopt : curve_.estimate(blocks);
    if (point) all.points.push_back({point->capacity, point->miss_ratio, point->error});
  }
  return all;
}

blocks::watch_maker watch_maker_of(const config::node_config& config) {
  if (config.optimize.mode == config::optimize_mode::off) return {};
  return [](std::uint64_t capacity) { return std::make_unique<live_curve>(capacity); };
}

}  // namespace cenote
