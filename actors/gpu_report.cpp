#include "actors/gpu_report.hpp"

#include "actors/dram_below.hpp"
#include "actors/gpu_figures.hpp"

namespace cenote {

namespace {

device_figures figures_of(const blocks::store_status& store) {
  return {.capacity = store.capacity,
          .assigned = store.assigned,
          .used = store.used,
          .cached = store.cached,
          .blocks = store.present,
          .slabs = store.slabs,
          .sessions = store.sessions.size(),
          .writing_bytes = store.writing_bytes,
          .loading_bytes = store.loading_bytes,
          .commits = store.counters.commits,
          .evicted = store.counters.evicted,
          .removed = store.counters.removed,
          .demoted = store.counters.demoted,
          .demotions_dropped = store.counters.demotions_dropped,
          .promoted = store.counters.promoted,
          .promotions_failed = store.counters.promotions_failed,
          .quarantined = store.quarantined};
}

/// Figures of all devices' ways to DRAM are told apart by the part that they stand in.
void append_below(std::vector<figure_value>& to, const tier_report& below) {
  to.insert(to.end(), below.gauges.begin(), below.gauges.end());
  to.insert(to.end(), below.counters.begin(), below.counters.end());
}

report_part part_of(const device_report& device) {
  report_part one{.list = "gpu.devices", .label = "device", .name = device.device, .texts = {}, .figures = {}};
  one.texts = {{.path = "gpu.devices[].device", .value = device.device},
               {.path = "gpu.devices[].state",
                .value = std::string(name_of(device.phase)),
                .metric = "cenote_gpu_ready",
                .help = "1 when a device's tier serves, else 0.",
                .gauge = device.phase == device_phase::ready ? 1.0 : 0.0},
               {.path = "gpu.devices[].why", .value = device.why}};
  if (device.store) append_figures(one.figures, figures_of(device.store->store));
  if (device.below) append_below(one.figures, *device.below);
  return one;
}

}  // namespace

tier_report_ptr describe_devices(const std::vector<device_report>& devices) {
  if (devices.empty()) return nullptr;
  auto made = std::make_shared<tier_report>("gpu");
  for (const device_report& each : devices) {
    made->parts.push_back(part_of(each));
    if (each.below) made->queued += each.below->queued;
  }
  return made;
}

tier_report_ptr example_of_devices() {
  device_report one;
  one.device = "sim:0";
  one.store = std::make_shared<const dram_report>();
  one.below = report_of(gpu::guest_counters{});
  return describe_devices({one});
}

}  // namespace cenote
