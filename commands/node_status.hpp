// Typed reading of a node's status by the tables of figures (core/figure.hpp): a figure that no report has does not
// compile, and one that the node does not say is 0.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

#include "commands/common.hpp"
#include "core/figure.hpp"
#include "tiers/blocks/figures.hpp"
#include "tiers/nvme/figures.hpp"
#include "tiers/prefetch/status.hpp"
#include "worker/node_figures.hpp"

namespace cenote {

/// What stands at "counters.commits"; null where there is no such thing.
[[nodiscard]] const nlohmann::json& at_path(const nlohmann::json& object, std::string_view path);

/// A report as the node filled it, but for what is no figure. `status`: the status, or of a report that stands in a
/// list its element.
template <class Report>
[[nodiscard]] Report figures_in(const nlohmann::json& status) {
  Report report;
  for (const figure<Report>& row : figure_table<Report>::rows) {
    if (row.path.empty()) continue;
    const nlohmann::json& said = at_path(status, path_in_element(row.path));
    if (const auto* count = std::get_if<std::uint64_t Report::*>(&row.value)) report.** count = to_count(said);
    if (const auto* number = std::get_if<double Report::*>(&row.value)) report.** number = to_number(said);
  }
  return report;
}

/// One figure as the node said it; null where it did not.
template <auto Member>
[[nodiscard]] const nlohmann::json& figure_in(const nlohmann::json& report) {
  return at_path(report, path_in_element(status_path_of<Member>()));
}

/// Prefetches that ended for this reason.
[[nodiscard]] std::uint64_t ended_by(const nlohmann::json& status, prefetch::reason why);

}  // namespace cenote
