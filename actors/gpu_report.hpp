// What the GPU tier says of itself: a part for each device.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/messages.hpp"
#include "actors/tier_report.hpp"

namespace cenote {

/// Of one device, as far as its actors answered.
struct device_report {
  std::string device;
  device_phase phase = device_phase::opening;
  std::string why{};  ///< away: the reason
  dram_report_ptr store{};
  tier_report_ptr below{};  ///< the way to DRAM
};

/// Null: there are none.
[[nodiscard]] tier_report_ptr describe_devices(const std::vector<device_report>& devices);
/// With every part, for the reference of metrics.
[[nodiscard]] tier_report_ptr example_of_devices();

}  // namespace cenote
