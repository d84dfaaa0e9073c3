// Aligned columns for a terminal.
#pragma once

#include <string>
#include <vector>

namespace cenote {

/// Rows of equal width; the first one is the heading. Numbers look best right-aligned: a column whose heading begins
/// with '>' is (the sign is not printed).
class table {
 public:
  explicit table(std::vector<std::string> heading) : rows_{std::move(heading)} {}

  /// Missing cells are empty, surplus ones are dropped. What would steer a terminal is escaped (core/text).
  void add(std::vector<std::string> row);
  /// The heading with its signs, then the cells as they were added.
  [[nodiscard]] const std::vector<std::vector<std::string>>& rows() const noexcept { return rows_; }
  [[nodiscard]] bool empty() const noexcept { return rows_.size() == 1; }

  /// Two blanks between columns, each line indented by `indent`, none ends in blanks.
  [[nodiscard]] std::string text(std::size_t indent = 2) const;

 private:
  std::vector<std::vector<std::string>> rows_;
};

/// A share for people: "12.34 %".
[[nodiscard]] std::string percent(double share);

}  // namespace cenote
