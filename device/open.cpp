#include <charconv>
#include <string>

#include "device/cuda/cuda_device.hpp"
#include "device/device.hpp"
#include "device/sim.hpp"

namespace cenote {

namespace {

bool is_number(std::string_view text) noexcept {
  unsigned value = 0;
  const auto [end, wrong] = std::from_chars(text.data(), text.data() + text.size(), value);
  return wrong == std::errc() && end == text.data() + text.size();
}

}  // namespace

result<std::unique_ptr<device>> device::open(std::string_view which) {
  const std::size_t colon = which.find(':');
  const std::string_view kind = which.substr(0, colon);
  const std::string_view name = colon == std::string_view::npos ? "" : which.substr(colon + 1);
  if (kind == "sim" && is_number(name)) return std::make_unique<sim_device>();
  if (kind == "cuda" && (is_number(name) || name.starts_with("GPU-"))) return cuda::cuda_device::open(name);
  return fail(error_code::invalid_argument,
              "'" + std::string(which) + "' is no device; cuda:GPU-UUID, cuda:NUMBER and sim:NUMBER are");
}

}  // namespace cenote
