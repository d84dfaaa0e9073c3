#include "commands/optimize/serving_options.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "commands/optimize/refusal.hpp"
#include "commands/replay/options.hpp"

namespace cenote::optimize {

namespace {

constexpr std::uint64_t most_replicas = 1'000'000;

}  // namespace

result<simulation::price_list> parse_prices_of(const std::string& text, std::span<const tier_choice> tiers) {
  auto prices = simulation::parse_prices(text);
  if (!prices) return std::unexpected(prices.error().in("--price"));
  for (const auto& each : prices->tiers) {
    const auto has_name = [&](const tier_choice& tier) { return tier.link.name == each.name; };
    if (!std::ranges::any_of(tiers, has_name)) {
      return refuse(fmt::format("--price: {} is no --tier; a replica's price is that of replica", each.name));
    }
  }
  return prices;
}

void serving_options::add_to(CLI::App& command) {
  command.add_option("--replicas", replicas, "Engines, each with one prefill at a time; without it and --slo one")
      ->check(CLI::Range(std::uint64_t{1}, most_replicas));
  command.add_option("--slo", service_level,
                     "Find the fewest replicas that keep it, as in ttft_p90=2s,ttft_p99=5s, in place of --replicas");
  command.add_option("--speed", speed, "Requests come so many times as fast as recorded, as in 2x; max: all at once")
      ->capture_default_str();
  command.add_option("--price", prices, "Of an hour, as in replica=98/h,dram=0.004/GiB/h");
  command.add_flag("--overlap", overlaps, "Load and compute at the same time, layer by layer");
  command.add_flag("--no-gate", loads_always, "Load also where computing would be sooner");
}

result<serving_terms> serving_options::terms(std::span<const tier_choice> tiers) const {
  serving_terms terms;
  const auto factor = parse_speed(speed);
  if (!factor) return std::unexpected(factor.error());
  terms.speed = *factor;
  if (!service_level.empty()) {
    if (replicas > 0) return refuse("--slo looks for the replicas that --replicas gives: leave one of them out");
    auto level = simulation::parse_service_level(service_level);
    if (!level) return std::unexpected(level.error().in("--slo"));
    terms.level = std::move(*level);
  }
  if (prices.empty()) return terms;
  auto list = parse_prices_of(prices, tiers);
  if (!list) return std::unexpected(list.error());
  terms.prices = std::move(*list);
  return terms;
}

result<simulation::cost_model> serving_options::cost(const prefill_options& engine) const {
  auto cost = engine.cost();
  if (!cost) return cost;
  if (overlaps) cost->overlap = simulation::load_overlap::layer_wise;
  if (loads_always) cost->gate = simulation::load_gate::open;
  return cost;
}

}  // namespace cenote::optimize
