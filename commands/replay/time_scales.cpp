#include "commands/replay/time_scales.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace cenote::replay {

namespace {

constexpr std::array<time_scale, 4> scales{{{time_unit::seconds, "seconds", "s", 1e6, 1e9},
                                            {time_unit::milliseconds, "milliseconds", "ms", 1e3, 1e12},
                                            {time_unit::microseconds, "microseconds", "us", 1, 1e15},
                                            {time_unit::nanoseconds, "nanoseconds", "ns", 1e-3, 1e18}}};

constexpr std::uint64_t fewest_rated = 10;   // too few requests for a usual rate
constexpr std::uint64_t most_short = 1'000;  // …
constexpr double most_of_many = 1'000;       // requests a second of a busy service
constexpr double most_of_some = 100;         // … in a short trace, of which a log is rarely so dense a part
constexpr double most_of_parts = 10;         // … with fractions of a millisecond, which seconds have more often
constexpr double hour_s = 3600;

}  // namespace

std::span<const time_scale> time_scales() noexcept {
  return scales;
}

const time_scale& scale_of(time_unit unit) noexcept {
  return *std::ranges::find(scales, unit, &time_scale::unit);
}

const time_scale* scale_since_1970(double time) noexcept {
  const auto found = std::ranges::find_if(
      scales, [&](const time_scale& each) { return time >= each.since_1970 && time < 5 * each.since_1970; });
  return found == scales.end() ? nullptr : &*found;
}

std::string since_1970_remark(const time_scale& guessed) {
  return fmt::format("`timestamp` is taken as {} since 1970; --time-unit says otherwise", guessed.name);
}

bool guessed_times::add(const formats::line_request& request) noexcept {
  if (request.source != formats::line_request::time_source::clock || request.unit != time_unit::automatic) return false;
  ++requests;
  has_fractions |= !request.is_whole && request.time != std::floor(request.time);
  return true;
}

std::optional<std::string> guessed_times::remark() const {
  if (requests < fewest_rated) return std::nullopt;
  const auto count = static_cast<double>(requests);
  const double most = has_fractions ? most_of_parts : requests < most_short ? most_of_some : most_of_many;
  if (seconds > 0 && count / seconds > most) {
    return fmt::format("{} requests in {:.3g} s: if `timestamp` counts seconds, say --time-unit s", requests, seconds);
  }
  if (seconds / count <= hour_s) return std::nullopt;
  return fmt::format(
      "one request in {:.1f} hours: if `timestamp` counts microseconds or nanoseconds, say --time-unit us or ns",
      seconds / count / hour_s);
}

time_unit given_unit(time_unit option, const formats::format* format) noexcept {
  return option == time_unit::automatic && format != nullptr ? format->unit : option;
}

std::uint64_t microseconds_of(const formats::line_request& request, const time_scale& usual) noexcept {
  constexpr auto largest = static_cast<double>(std::uint64_t{1} << 62U);
  const time_scale& scale = request.unit == time_unit::automatic ? usual : scale_of(request.unit);
  if (request.is_whole && scale.microseconds < 1) return request.whole / 1000;  // more digits than a double has
  return static_cast<std::uint64_t>(std::min(std::round(request.time * scale.microseconds), largest));
}

}  // namespace cenote::replay
