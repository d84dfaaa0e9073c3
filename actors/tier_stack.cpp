#include "actors/tier_stack.hpp"

#include <utility>

#include "actors/dram_tier.hpp"
#include "actors/prefetch.hpp"

namespace cenote {

tier_stack make_tiers(caf::actor_system& system, data_path& path, stack_parts parts) {
  tier_stack made;
  made.lower = std::move(parts.lower);
  made.top = system.spawn<dram_tier>(std::move(parts.store), std::move(parts.sessions), std::move(parts.request),
                                     made.lower, std::move(parts.alive));
  made.planner = system.spawn<prefetch_planner>(parts.plan, made.top);
  path.repeat(dram_tier::tick_interval, made.top, tick_atom_v);
  for (const lower_tier& each : made.lower) path.repeat(each.tick_interval, each.actor, tick_atom_v);
  return made;
}

}  // namespace cenote
