#include "actors/tier_stack.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <ranges>
#include <utility>

#include "actors/dram_tier.hpp"
#include "actors/nvme_stack.hpp"
#include "actors/prefetch.hpp"
#include "actors/remote_stack.hpp"

namespace cenote {

std::span<const lower_tier_kind> lower_tier_kinds() {
  static const std::array kinds{nvme_kind(), remote_kind()};
  return kinds;
}

namespace {

auto wanted_kinds(const config::node_config& config) {
  return lower_tier_kinds() |
         std::views::filter([&config](const lower_tier_kind& each) { return each.is_wanted(config); });
}

}  // namespace

std::vector<blocks::edge_options> edges_of(const config::node_config& config) {
  std::vector<blocks::edge_options> all;
  for (const lower_tier_kind& each : wanted_kinds(config)) all.push_back(each.edge_of(config));
  return all;
}

std::vector<std::string_view> edge_names(const config::node_config& config) {
  std::vector<std::string_view> all;
  for (const lower_tier_kind& each : wanted_kinds(config)) all.push_back(each.name);
  return all;
}

std::vector<finding> check_lower_tiers(const config::node_config& config) {
  std::vector<finding> all;
  for (const lower_tier_kind& each : wanted_kinds(config))
    std::ranges::move(each.check(config), std::back_inserter(all));
  return all;
}

std::vector<std::unique_ptr<lower_tier_host>> make_lower_tiers(const lower_tier_needs& needs) {
  std::vector<std::unique_ptr<lower_tier_host>> all;
  for (const lower_tier_kind& each : wanted_kinds(*needs.config)) all.push_back(each.make(needs));
  return all;
}

std::vector<lower_tier> tiers_of(const std::vector<std::unique_ptr<lower_tier_host>>& hosts) {
  std::vector<lower_tier> all;
  all.reserve(hosts.size());
  for (const auto& each : hosts) all.push_back(each->tier());
  return all;
}

void count_unconfirmed(const std::vector<std::unique_ptr<lower_tier_host>>& hosts, const instance_identity& identity,
                       const std::function<void(remote::unconfirmed_removals)>& answer) {
  const auto add = remote::sum_of(hosts.size() + 1, answer);
  for (const auto& each : hosts) each->count_unconfirmed(identity, add);
  add({});
}

tier_stack make_tiers(caf::actor_system& system, data_path& path, stack_parts parts) {
  tier_stack made;
  made.lower = std::move(parts.lower);
  made.top =
      system.spawn<dram_tier>(std::move(parts.store), std::move(parts.sessions), std::move(parts.request), made.lower,
                              std::move(parts.alive), std::move(parts.maker), std::move(parts.tell_news),
                              block_tier_role{.awaited_listeners = parts.listeners}, std::move(parts.tell_watched));
  made.planner =
      system.spawn<prefetch_planner>(parts.plan, made.top, made.lower, prefetch::clock::now, std::move(parts.follow));
  path.repeat(dram_tier::tick_interval, made.top, tick_atom_v);
  for (const lower_tier& each : made.lower) path.repeat(each.tick_interval, each.actor, tick_atom_v);
  return made;
}

}  // namespace cenote
