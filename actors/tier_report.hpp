// What a tier below a block tier says of itself, in a form that status and metrics show without knowing the tier.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/figure_value.hpp"
#include "core/histogram.hpp"

namespace cenote {

/// Something that status shows and that is no number; metrics may have a gauge of it.
struct report_text {
  std::string_view path;  ///< as figure::path
  std::variant<std::string, bool> value;
  std::string_view metric{};  ///< empty: none
  std::string_view help{};
  double gauge = 0;
};

/// How long something took, in nanoseconds.
struct report_times {
  std::string_view path;
  std::string_view metric;
  std::string_view help;
  histogram of;
  figure_label label{};
};

/// One of several things of a kind that a tier has: an element of a list in status, a label in metrics.
struct report_part {
  std::string_view list;   ///< "nvme.paths"
  std::string_view label;  ///< "path"
  std::string name;        ///< … which one
  std::vector<report_text> texts;
  std::vector<figure_value> figures;
  /// A user whose words it has: of the clients it is shown to that one's alone, and over HTTP to none. Metrics have the
  /// sum of those with the same `labels`, and no name.
  std::optional<std::uint32_t> owner{};
  std::vector<std::pair<std::string_view, std::string>> labels{};  ///< of a part that has an owner; bounded in number
};

/// What any tier below says of itself. One that has more to say, to those who know it, adds to it.
struct tier_report {
  tier_report() = default;
  explicit tier_report(std::string called) : name(std::move(called)) {}
  tier_report(const tier_report&) = default;
  tier_report& operator=(const tier_report&) = default;
  virtual ~tier_report() = default;

  std::string name;  ///< as the configuration calls it
  std::vector<report_text> texts{};
  std::vector<figure_value> gauges{}, counters{};
  std::vector<report_times> times{};
  std::vector<report_part> parts{};
  std::uint64_t queued = 0;  ///< messages that wait for the tier
};

using tier_report_ptr = std::shared_ptr<const tier_report>;

}  // namespace cenote
