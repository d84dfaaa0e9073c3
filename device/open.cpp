#include <algorithm>
#include <charconv>
#include <memory>
#include <optional>
#include <string>

#include "device/cuda/cuda_device.hpp"
#include "device/device.hpp"
#include "device/sim.hpp"

namespace cenote {

namespace {

std::optional<unsigned> number_of(std::string_view text) noexcept {
  unsigned value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (wrong != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

/// "<number>" or "<number>,fail=<n>"; null: neither.
std::unique_ptr<device> open_simulated(std::string_view name) {
  constexpr std::string_view failing = ",fail=";
  const std::size_t comma = std::min(name.find(','), name.size());
  const std::string_view fault = name.substr(comma);
  if (!number_of(name.substr(0, comma))) return nullptr;
  auto made = std::make_unique<sim_device>();
  if (fault.empty()) return made;
  const auto number = fault.starts_with(failing) ? number_of(fault.substr(failing.size())) : std::nullopt;
  if (number.value_or(0) == 0) return nullptr;
  made->fail_work(*number);
  return made;
}

}  // namespace

result<std::unique_ptr<device>> device::open(std::string_view which) {
  const std::size_t colon = which.find(':');
  const std::string_view kind = which.substr(0, colon);
  const std::string_view name = colon == std::string_view::npos ? "" : which.substr(colon + 1);
  if (kind == "sim") {
    if (auto made = open_simulated(name)) return made;
  }
  if (kind == "cuda" && (number_of(name) || name.starts_with("GPU-"))) return cuda::cuda_device::open(name);
  return fail(
      error_code::invalid_argument,
      "'" + std::string(which) + "' is no device; cuda:GPU-UUID, cuda:NUMBER, sim:NUMBER and sim:NUMBER,fail=N are");
}

}  // namespace cenote
