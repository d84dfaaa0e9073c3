// The analyses of a trace as members of a JSON object and as tables.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "commands/optimize/trace_figures.hpp"
#include "commands/replay/trace.hpp"

namespace cenote::optimize {

struct figure_form {
  std::size_t top = 10;               ///< hot runs
  std::uint64_t bytes_per_token = 0;  ///< 0: no sizes in bytes
  bool has_windows = false;           ///< figures over time were asked for
};

/// Adds the members to `object`; an analysis that does not hold is null, its reason in `omitted`.
void add_figures(nlohmann::ordered_json& object, const read_trace& read, const trace_figures& figures,
                 const figure_form& form);

/// Tables, each with a heading; `requests` are those of the figures.
[[nodiscard]] std::string figures_text(const read_trace& read, const simulation::trace& requests,
                                       const trace_figures& figures, const figure_form& form);

}  // namespace cenote::optimize
