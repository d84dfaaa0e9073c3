#include "commands/replay/simulated_curves.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <memory>
#include <thread>

#include "cluster/placement.hpp"
#include "commands/replay/content.hpp"
#include "core/instance_spec.hpp"
#include "core/stored_identity.hpp"
#include "simulation/pool_simulation.hpp"
#include "simulation/simulation.hpp"

namespace cenote::replay {

namespace {

constexpr std::uint64_t region = std::uint64_t{128} << 20;
constexpr std::size_t rounds = 5;
constexpr unsigned doublings = 8;

double thread_seconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

}  // namespace

double measure_memcpy(std::uint64_t block_bytes) {
  const std::uint64_t piece = std::min(block_bytes, region);
  const std::uint64_t bytes = region / piece * piece;
  std::vector<std::byte> from(bytes, std::byte{1});
  std::vector<std::byte> to(bytes, std::byte{2});
  std::array<double, rounds> rates{};
  for (double& rate : rates) {
    const double before = thread_seconds();
    for (std::uint64_t at = 0; at < bytes; at += piece) std::memcpy(to.data() + at, from.data() + at, piece);
    // Without it the copies may be left out.
    asm volatile("" : : "r"(to.data()) : "memory");
    rate = static_cast<double>(bytes) / (thread_seconds() - before);
  }
  std::ranges::sort(rates);
  return rates[rounds / 2];
}

namespace {

/// The tiers of `blocks`, the device above DRAM where there is one.
simulation::tier_stack stack_of(const replay_result& replay, const simulated_node& blocks, node_tiers how) {
  simulation::tier_stack tiers{.upper_policy = replay.policy, .upper_capacity = blocks.dram_blocks, .lower = {}};
  if (blocks.gpu_blocks > 0) {
    tiers = {.upper_policy = how.gpu_policy,
             .upper_capacity = blocks.gpu_blocks,
             .lower = {{.policy = replay.policy, .capacity = blocks.dram_blocks, .ingest = how.gpu_ingest}},
             .upper_is_device = true};
  }
  how.nvme.capacity = blocks.nvme_blocks;
  how.remote.capacity = replay.ran.distinct();
  const bool nvme_takes = how.nvme.capacity > 0 && how.nvme.ingest == ingest::evicted;
  if (nvme_takes && how.remote.ingest == ingest::evicted) how.remote.ingest = ingest::none;  // a node has no cascade
  if (how.nvme.capacity > 0) tiers.lower.push_back(std::move(how.nvme));
  if (replay.has_remote) tiers.lower.push_back(std::move(how.remote));
  return tiers;
}

}  // namespace

std::optional<simulated_node> simulate_node(const replay_result& replay, node_tiers how) {
  constexpr auto order = simulation::replay_order::reverse;
  const std::uint64_t stride = (replay.settings.block_bytes + block_alignment - 1) / block_alignment * block_alignment;
  if (stride == 0 || replay.ran.requests().empty() || replay.policy == "belady") return std::nullopt;
  simulated_node simulated{.gpu_blocks = static_cast<std::uint32_t>(replay.gpu_capacity / stride),
                           .dram_blocks = static_cast<std::uint32_t>(replay.dram_capacity / stride),
                           .nvme_blocks = static_cast<std::uint32_t>(replay.nvme_capacity / stride)};
  const auto tiers = stack_of(replay, simulated, std::move(how));
  const auto sums = [&]() -> result<simulation::replay_sums> {
    // Alone, DRAM may refuse a block; above others it takes each one first.
    if (tiers.lower.empty()) return simulation::simulate(replay.ran, replay.policy, tiers.upper_capacity, order);
    auto over_others = simulation::simulate(replay.ran, tiers, order);
    if (!over_others) return std::unexpected(over_others.error());
    const auto share = [&](std::uint64_t tokens) {
      return ratio(static_cast<double>(tokens), static_cast<double>(over_others->all.tokens));
    };
    simulated.by_tier.push_back(share(over_others->upper_tokens));
    for (const auto& each : over_others->lower) simulated.by_tier.push_back(share(each.prefix_tokens));
    return over_others->all;
  }();
  if (!sums) return std::nullopt;
  simulated.prefix_hits = sums->prefix_hits;
  simulated.hit_ratio = sums->hit_ratio();
  return simulated;
}

namespace {

/// Homes as the nodes of `replay` have them: they weigh the same.
std::vector<std::uint32_t> homes_of(const replay_result& replay) {
  std::vector<cluster::place> places;
  places.reserve(replay.nodes.size());
  for (const auto& each : replay.nodes) places.push_back({each.name, 1});
  const cluster::placement placement(std::move(places));
  std::vector<std::uint32_t> number_of(placement.size());  // it has an order of its own
  for (std::size_t i = 0; i < number_of.size(); ++i) {
    const auto at = std::ranges::find(replay.nodes, placement.name(i), &node_result::name);
    number_of[i] = static_cast<std::uint32_t>(at - replay.nodes.begin());
  }
  const instance_identity identity = identity_of(spec_of(replay.settings));
  std::vector<std::uint32_t> homes;
  homes.reserve(replay.ran.distinct());
  for (const std::uint64_t id : replay.ran.identities()) {
    homes.push_back(number_of[placement.home(identity, reduce_key(key_of(id), 0))]);
  }
  return homes;
}

/// The hits of each node without the others, all together.
result<double> alone_ratio(const replay_result& replay, std::uint32_t capacity, simulation::replay_order order) {
  std::vector<simulation::trace> parts(replay.nodes.size());
  const auto requests = replay.ran.requests();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& each = requests[i];
    parts[replay.ran_at[i]].add(each.time_ms, each.tokens, replay.ran.ids(each));
  }
  std::uint64_t hits = 0;
  for (const auto& part : parts) {
    const auto sums = simulation::simulate(part, replay.policy, capacity, order);
    if (!sums) return std::unexpected(sums.error());
    hits += sums->prefix_tokens;
  }
  return ratio(static_cast<double>(hits), static_cast<double>(replay.ran.tokens()));
}

}  // namespace

std::optional<simulated_nodes> simulate_nodes(const replay_result& replay, std::optional<double> copies) {
  constexpr auto order = simulation::replay_order::reverse;
  const std::uint64_t stride = (replay.settings.block_bytes + block_alignment - 1) / block_alignment * block_alignment;
  if (stride == 0 || replay.ran.requests().empty() || replay.nvme_capacity > 0) return std::nullopt;
  const auto count = static_cast<std::uint32_t>(replay.nodes.size());
  const auto capacity = static_cast<std::uint32_t>(replay.nodes.front().dram_capacity / stride);
  const simulation::node_pool pool{.nodes = count, .capacity = capacity, .policy = replay.policy, .copies = copies};
  const auto sums = simulation::simulate(replay.ran, pool, homes_of(replay), replay.ran_at, order);
  const auto one = simulation::simulate(replay.ran, replay.policy, capacity * count, order);
  const auto alone = alone_ratio(replay, capacity, order);
  if (!sums || !one || !alone) return std::nullopt;
  return simulated_nodes{
      .dram_blocks = capacity,
      .copies = copies,
      .hit_ratio = sums->all.hit_ratio(),
      .local_ratio = ratio(static_cast<double>(sums->local_tokens), static_cast<double>(sums->all.tokens)),
      .one_node_ratio = one->hit_ratio(),
      .alone_ratio = *alone};
}

result<void> simulate_curves(const simulation::trace& trace, const std::vector<std::string>& policies,
                             replay_result& into) {
  into.capacities.clear();
  into.curves.clear();
  for (unsigned i = doublings; i-- > 0;) {
    const std::uint32_t capacity = std::max(1U, trace.distinct() >> i);
    if (into.capacities.empty() || capacity > into.capacities.back()) into.capacities.push_back(capacity);
  }
  for (const std::string& each : policies) {
    const bool known = std::ranges::any_of(into.curves, [&](const auto& curve) { return curve.policy == each; });
    if (!known) into.curves.push_back({each, std::vector<double>(into.capacities.size())});
  }
  into.curves.push_back({"belady", std::vector<double>(into.capacities.size())});
  for (const auto& each : into.curves) {
    if (auto ok = simulation::check_simulated(each.policy, simulation::replay_order::forward); !ok) return ok;
  }
  std::atomic<std::size_t> next = 0;
  const auto take = [&] {
    const std::size_t all = into.curves.size() * into.capacities.size();
    for (std::size_t i = next++; i < all; i = next++) {
      simulated_curve& curve = into.curves[i / into.capacities.size()];
      const std::size_t place = i % into.capacities.size();
      const auto order = curve.policy == "belady" ? simulation::replay_order::forward
                                                  : simulation::replay_order::reverse;  // as the tiers
      const auto sums = simulation::simulate(trace, curve.policy, into.capacities[place], order);
      curve.hit_ratio[place] = sums ? sums->hit_ratio() : 0;
    }
  };
  std::vector<std::jthread> helpers;
  for (unsigned i = 1; i < std::max(1U, std::thread::hardware_concurrency()); ++i) helpers.emplace_back(take);
  take();
  return {};
}

}  // namespace cenote::replay
