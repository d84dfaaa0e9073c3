// The engine of which `cenote optimize` computes times: its model, its GPUs, its rate.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/error.hpp"
#include "simulation/optimize/cost_model.hpp"
#include "simulation/optimize/model_spec.hpp"

namespace CLI {
class App;
}

namespace cenote::optimize {

/// The figures that follow from the options; a figure that does not follow has no value.
struct engine_figures {
  std::optional<std::uint64_t> bytes_per_token;
  std::uint64_t window_bytes = 0;              ///< of layers with a window, at most
  double active_parameters = 0;                ///< 0: not known
  std::optional<simulation::model_spec> spec;  ///< of a model that is given
  std::optional<double> pivot;                 ///< infinity: attention is free
  std::optional<simulation::gpu_preset> gpu;   ///< with its mfu as it was given
  double peak_flops = 0;                       ///< of all GPUs, at mfu 1
  double memory_bandwidth = 0;                 ///< of all GPUs, bytes a second
  std::optional<simulation::prefill_model> prefill;

  /// Errors: invalid_argument that names the option which gives them.
  [[nodiscard]] result<simulation::prefill_model> needed_prefill() const;
  [[nodiscard]] result<std::uint64_t> needed_bytes() const;
};

struct prefill_options {
  std::string model;  ///< a preset or a file
  std::string gpu;
  std::uint64_t gpus = 0;  ///< 0: one
  std::string mfu;
  std::string prefill;
  std::string pivot;
  std::string active_parameters;
  std::string kv_dtype;
  std::uint64_t ranks = 1;
  std::string bytes_per_token;
  std::string constant;

  void add_to(CLI::App& command);
  /// Reads the model's file. Errors: invalid_argument for options, malformed and system for the file.
  [[nodiscard]] result<engine_figures> figures() const;
  /// A model of the figures, without which nothing is served. Errors: as figures(), and invalid_argument that names the
  /// option which gives a missing one.
  [[nodiscard]] result<simulation::cost_model> cost() const;
};

/// The options for `cenote optimize calibrate`: of the model and the GPUs only.
void add_model_options(CLI::App& command, prefill_options& options);

}  // namespace cenote::optimize
