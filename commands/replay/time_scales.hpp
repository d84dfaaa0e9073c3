// The units in which traces have their times.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "simulation/formats/format.hpp"

namespace cenote::replay {

struct time_scale {
  time_unit unit = time_unit::milliseconds;
  std::string_view name;
  std::string_view option;  ///< of --time-unit
  double microseconds = 0;  ///< of one
  double since_1970 = 0;    ///< what 2001 to 2128 begins with
};

/// All of them.
[[nodiscard]] std::span<const time_scale> time_scales() noexcept;
/// `unit` is not automatic.
[[nodiscard]] const time_scale& scale_of(time_unit unit) noexcept;
/// The one in which `time` is a time since 1970, or none.
[[nodiscard]] const time_scale* scale_since_1970(double time) noexcept;
/// The remark on times that are taken as since 1970 though nothing gives their unit.
[[nodiscard]] std::string since_1970_remark(const time_scale& guessed);

/// Requests with times whose unit nothing gives, taken as milliseconds.
struct guessed_times {
  std::uint64_t requests = 0;
  double seconds = 0;          ///< from the first one to the last
  bool has_fractions = false;  ///< of a millisecond

  /// Adds a request, if the unit of its time is such a one. Returns whether it is.
  bool add(const formats::line_request& request) noexcept;
  /// The remark on a rate that recorded requests rarely have.
  [[nodiscard]] std::optional<std::string> remark() const;
};

/// By the option, or else by the format, if there is one; else automatic.
[[nodiscard]] time_unit given_unit(time_unit option, const formats::format* format) noexcept;
/// The request's time, where it has one; `usual` counts where its line has no unit of its own.
[[nodiscard]] std::uint64_t microseconds_of(const formats::line_request& request, const time_scale& usual) noexcept;

}  // namespace cenote::replay
