// The page around a replay's plots: one HTML file that needs nothing else.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "commands/replay/result.hpp"
#include "commands/table.hpp"
#include "core/error.hpp"
#include "core/page/html_parts.hpp"
#include "core/page/svg_chart.hpp"

namespace cenote::replay {

struct page {
  std::string title;
  std::string body;             ///< HTML
  nlohmann::ordered_json data;  ///< embedded as it is, for programs
};

/// Light or dark as the reader's system is; runs nothing and asks for nothing.
[[nodiscard]] std::string html_of(const page& what);

/// Writes what is to be a page, whole or not at all: under another name beside it, which then takes its place. Devices
/// and pipes are written as they are.
[[nodiscard]] result<void> write_page(const std::string& path, const std::string& html);
/// Found out before a replay of an hour, not after it; an empty path is no page. Leaves no file behind.
[[nodiscard]] result<void> check_writable(const std::string& path);

/// Heading and rows for a terminal: the first column to the left.
[[nodiscard]] std::string text_table(const std::vector<std::vector<std::string>>& rows, std::size_t indent = 2);

/// An HTML table; the first row is the heading. Cells are escaped, and whole numbers get separators but in the first
/// column.
[[nodiscard]] std::string html_table(const std::vector<std::vector<std::string>>& rows);
/// A table for terminals, its heading in small letters.
[[nodiscard]] std::string html_table(const table& rows);

using cenote::html_of;  // of cards

/// Ticks and values in percent, from 0 to `high` (a ratio).
[[nodiscard]] chart_axis percent_axis(std::string label, double high);
/// A logarithmic axis of times that holds all of `us`, microseconds.
[[nodiscard]] chart_axis duration_axis(const std::vector<chart_series>& us);
/// A logarithmic axis of capacities, with their bytes unless `block_bytes` is 0.
[[nodiscard]] chart_axis capacity_axis(const std::vector<double>& blocks, std::uint64_t block_bytes);

/// This machine and program, and the command line of this process.
[[nodiscard]] provenance provenance_of(std::string_view generated);
[[nodiscard]] std::string html_of(const provenance& origin);
[[nodiscard]] nlohmann::ordered_json json_of(const provenance& origin);

}  // namespace cenote::replay
