// Times and figures of engines, for terminals and JSON.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

namespace cenote::optimize {

/// "1.234 s", "12.3 ms", "45 us".
[[nodiscard]] inline std::string seconds_text(double seconds) {
  if (seconds >= 1) return fmt::format("{:.3f} s", seconds);
  if (seconds >= 1e-3) return fmt::format("{:.2f} ms", seconds * 1e3);
  return fmt::format("{:.1f} us", seconds * 1e6);
}

/// "20.00 GB/s", "1.00 KB/s".
[[nodiscard]] inline std::string bandwidth_text(double bytes_per_second) {
  if (bytes_per_second >= 1e9) return fmt::format("{:.2f} GB/s", bytes_per_second / 1e9);
  if (bytes_per_second >= 1e6) return fmt::format("{:.2f} MB/s", bytes_per_second / 1e6);
  return fmt::format("{:.2f} KB/s", bytes_per_second / 1e3);
}

/// A pivot for people.
[[nodiscard]] inline std::string pivot_text(double pivot) {
  return std::isinf(pivot) ? "off: attention is free" : fmt::format("{:.0f} tokens of context", pivot);
}

/// null for 0 and infinity, which stand for nothing.
[[nodiscard]] inline nlohmann::ordered_json number_or_null(double number) {
  return number == 0 || !std::isfinite(number) ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(number);
}

/// A figure of each tier, by the tier's name; of tiers as the command line or a plan has them.
template <class Tiers>
[[nodiscard]] nlohmann::ordered_json json_of_tiers(const Tiers& tiers, std::span<const std::uint64_t> figures) {
  auto object = nlohmann::ordered_json::object();
  for (std::size_t i = 0; i < figures.size(); ++i) object[tiers[i].link.name] = figures[i];
  return object;
}

}  // namespace cenote::optimize
