// Figures with their values, for reports whose readers do not know what they are made of.
#pragma once

#include <cstdint>
#include <string_view>
#include <variant>
#include <vector>

#include "core/figure.hpp"

namespace cenote {

/// A row of a figure table and what the member held.
struct figure_value {
  std::string_view path;    ///< as figure::path
  std::string_view metric;  ///< as figure::metric
  figure_kind kind = figure_kind::counter;
  std::string_view unit, help;
  std::variant<std::uint64_t, double> value;
  figure_label label{};
};

/// Appends all figures of `from`.
template <class Report>
void append_figures(std::vector<figure_value>& to, const Report& from) {
  for (const figure<Report>& row : figure_table<Report>::rows) {
    std::visit(
        [&](auto member) {
          to.push_back({.path = row.path,
                        .metric = row.metric,
                        .kind = row.kind,
                        .unit = row.unit,
                        .help = row.help,
                        .value = from.*member,
                        .label = row.label});
        },
        row.value);
  }
}

}  // namespace cenote
