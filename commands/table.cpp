#include "commands/table.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/text.hpp"

namespace cenote {

void table::add(std::vector<std::string> row) {
  row.resize(rows_.front().size());
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::string table::text(std::size_t indent) const {
  auto rows = rows_;
  std::vector<bool> right(rows.front().size());
  std::vector<std::size_t> width(rows.front().size());
  for (std::size_t c = 0; c < right.size(); ++c) {
    auto& heading = rows.front()[c];
    right[c] = heading.starts_with('>');
    if (right[c]) heading.erase(0, 1);
    for (const auto& row : rows) width[c] = std::max(width[c], row[c].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line(indent, ' ');
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string blanks(width[c] - row[c].size(), ' ');
      line += right[c] ? blanks + row[c] : row[c] + blanks;
      line += "  ";
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

std::string percent(double share) {
  return fmt::format("{:.2f} %", share * 100);
}

}  // namespace cenote
