// The curve of a pool of a running node: hits of other capacities, from a sample of its requests.
#pragma once

#include "config/node_config.hpp"
#include "simulation/optimize/sampled_curve.hpp"
#include "tiers/blocks/request_watch.hpp"

namespace cenote {

/// A sampled curve of capacities up to four times the pool's, or 8,192 blocks; a request counts half after 50,000
/// others. It gives up to 25 capacities, from a sixteenth to sixteen times the present one, three for each power of
/// two. About 0.6 MiB. Not thread-safe.
class live_curve final : public blocks::request_watch {
 public:
  explicit live_curve(std::uint64_t capacity);

  void add(std::span<const std::uint64_t> chain) override { curve_.add(chain); }
  [[nodiscard]] blocks::curve_status status(std::uint64_t capacity) const override;

 private:
  simulation::sampled_curve curve_;
};

/// Makes live curves; empty where `optimize.mode` is off.
[[nodiscard]] blocks::watch_maker watch_maker_of(const config::node_config& config);

}  // namespace cenote
