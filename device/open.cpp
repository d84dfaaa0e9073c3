#include <memory>
#include <string>

#include "core/device_spec.hpp"
#include "device/cuda/cuda_device.hpp"
#include "device/device.hpp"
#include "device/sim.hpp"

namespace cenote {

namespace {

std::unique_ptr<device> open_simulated(const device_spec& spec) {
  auto made = std::make_unique<sim_device>();
  if (spec.fail_work != 0) made->fail_work(spec.fail_work);
  if (spec.lose_event != 0) made->lose_event(spec.lose_event);
  if (spec.hang_at != 0) made->hang_at(spec.hang_at);
  if (spec.memory_bytes != 0) made->limit_memory(spec.memory_bytes);
  return made;
}

}  // namespace

result<std::unique_ptr<device>> device::open(std::string_view which) {
  const auto spec = parse_device(which);
  if (!spec) {
    return fail(error_code::invalid_argument,
                "'" + std::string(which) +
                    "' is no device; cuda:GPU-UUID, GPU-UUID, cuda:NUMBER and sim:NUMBER are, and for tests "
                    "sim:NUMBER,fail=N,lose=N,hang=N,mib=N");
  }
  if (spec->kind == device_kind::sim) return open_simulated(*spec);
  return cuda::cuda_device::open(std::string_view(spec->name).substr(sizeof("cuda:") - 1));
}

}  // namespace cenote
