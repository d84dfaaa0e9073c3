// All analyses of one trace, and the reasons of those that do not hold for it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "simulation/optimize/analysis.hpp"
#include "simulation/optimize/prefix_tree.hpp"
#include "simulation/trace.hpp"

namespace cenote::optimize {

struct figure_choice {
  std::uint64_t window_ms = 0;            ///< 0: nothing over time
  std::optional<std::uint32_t> capacity;  ///< none: a quarter of the distinct blocks
  bool instances_share = false;           ///< equal keys are equal blocks
  bool has_times = true;                  ///< of the whole trace: time passes in it
};

/// An analysis that does not hold.
struct omitted_figure {
  std::string_view name;
  std::string_view reason;
};

struct trace_figures {
  bool has_times = true;                         ///< else no figure of times is one
  std::optional<simulation::block_reuse> reuse;  ///< its times only with times
  simulation::block_uses uses;
  simulation::helpless_requests helpless;
  std::optional<simulation::engine_hits> engine;
  std::vector<simulation::time_window> windows;
  std::optional<simulation::block_sharing> sessions;
  std::optional<simulation::block_sharing> instances;
  std::optional<simulation::prefix_tree> tree;
  std::optional<std::vector<simulation::turn_delay>> turns;
  std::optional<std::vector<simulation::block_size>> sizes;
  std::optional<std::vector<simulation::ttl_hits>> ttls;
  std::vector<omitted_figure> omitted;  ///< a row for each that is none
};

[[nodiscard]] trace_figures measure_figures(const simulation::trace& requests, const figure_choice& choice);

}  // namespace cenote::optimize
