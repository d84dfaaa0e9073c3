// What a node counts and measures, declared once: status, metrics and docs/metrics.md are made from tables of figures,
// and commands read status by them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <variant>

namespace cenote {

/// A counter only grows while a worker lives; a gauge is what is at the moment.
enum class figure_kind : std::uint8_t { counter, gauge };

/// Tells rows of one metric family apart: `state="present"`.
struct figure_label {
  std::string_view name{};
  std::string_view value{};
};

/// One member of a report, with everything that is said of it anywhere.
template <class Report>
struct figure {
  using member = std::variant<std::uint64_t Report::*, double Report::*>;

  /// Where `cenote status --json` has it: "counters.commits"; of a report that stands in a list "instances[].blocks".
  /// Empty: nowhere.
  std::string_view path;
  std::string_view metric;  ///< the family of /metrics; empty: none
  figure_kind kind = figure_kind::counter;
  std::string_view unit;  ///< what it counts: "blocks", "bytes", "seconds"
  std::string_view help;  ///< one line
  member value;
  figure_label label{};
};

/// The figures of a report, `rows`; specialised next to each report.
template <class Report>
struct figure_table;

/// Of a path the part within its report: "blocks" of "instances[].blocks".
[[nodiscard]] constexpr std::string_view path_in_element(std::string_view path) noexcept {
  const std::size_t list = path.rfind("[].");
  return list == std::string_view::npos ? path : path.substr(list + 3);
}

namespace detail {

template <class Member>
struct member_of;
template <class Report, class Value>
struct member_of<Value Report::*> {
  using report = Report;
};

}  // namespace detail

/// The row of a member: `figure_of<&store_counters::commits>()`. A member without one does not compile.
template <auto Member>
[[nodiscard]] consteval auto figure_of() {
  using report = typename detail::member_of<decltype(Member)>::report;
  for (const auto& row : figure_table<report>::rows) {
    // Not std::get_if: with a sanitizer, its look for a null pointer is no constant to g++ 12.
    if (row.value == typename figure<report>::member(Member)) return row;
  }
  throw "no row";  // no constant expression
}

/// Where status has a member. One that it does not have does not compile.
template <auto Member>
[[nodiscard]] consteval std::string_view status_path_of() {
  constexpr std::string_view path = figure_of<Member>().path;
  static_assert(!path.empty(), "status does not have it");
  return path;
}

/// True when no member has two rows; for static_assert.
template <class Report>
[[nodiscard]] consteval bool rows_are_distinct() {
  const auto& rows = figure_table<Report>::rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t k = 0; k < i; ++k) {
      if (rows[i].value == rows[k].value) return false;
    }
  }
  return true;
}

/// True when each member of a report of nothing but counters has its row; for static_assert.
template <class Report>
[[nodiscard]] consteval bool rows_are_complete() {
  return rows_are_distinct<Report>() && figure_table<Report>::rows.size() * sizeof(std::uint64_t) == sizeof(Report);
}

}  // namespace cenote
