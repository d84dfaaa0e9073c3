#include "commands/optimize/miniature_sweep.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "commands/replay/sizes.hpp"
#include "core/units.hpp"

namespace cenote::optimize {

namespace {

using simulation::miniature_caches;

constexpr std::size_t batch_keys = std::size_t{1} << 18U;  // tens of milliseconds of a core
constexpr std::uint64_t ms_per_tenth = 100;

}  // namespace

result<void> miniature_sweep::check_room(const sweep_setup& setup) {
  std::uint64_t bytes = setup.capacities.size() * miniature_caches::session_bytes;
  for (const std::uint32_t each : setup.capacities) {
    const std::uint64_t blocks = std::min<std::uint64_t>(each, miniature_caches::part_count * setup.part_blocks);
    bytes += blocks * (miniature_caches::block_bytes + setup.policies.size() * miniature_caches::policy_block_bytes);
  }
  const std::uint64_t room = replay::room_for_trace();
  if (bytes <= room) return {};
  return fail(error_code::limit_exceeded,
              fmt::format("the caches of {} policies at {} capacities take about {}, and {} are free; fewer of them or "
                          "of --sample-blocks take less",
                          setup.policies.size(), setup.capacities.size(), format_bytes(bytes), format_bytes(room)));
}

miniature_sweep::miniature_sweep(const sweep_setup& setup)
    : work_("curve", setup.capacities.size() * (setup.blocks / batch_keys + 1)) {
  for (const std::uint32_t each : setup.capacities) {
    caches_.push_back(std::make_unique<miniature_caches>(
        setup.policies,
        miniature_caches::settings{.capacity = each, .part_blocks = setup.part_blocks, .salt = setup.salt}));
  }
}

void miniature_sweep::add(std::span<const std::uint64_t> chain, std::uint64_t time_ms) {
  if (chain.empty()) return;
  keys_.insert(keys_.end(), chain.begin(), chain.end());
  requests_.push_back({chain.size(), static_cast<std::uint32_t>(time_ms / ms_per_tenth)});
  if (keys_.size() >= batch_keys) serve();
}

void miniature_sweep::finish() {
  if (!requests_.empty()) serve();
}

void miniature_sweep::serve() {
  work_.run(caches_.size(), [this](std::size_t capacity) {
    std::size_t first = 0;
    for (const batch_request& each : requests_) {
      caches_[capacity]->add(std::span(keys_).subspan(first, each.count), each.tenths);
      first += each.count;
    }
  });
  keys_.clear();
  requests_.clear();
}

}  // namespace cenote::optimize
