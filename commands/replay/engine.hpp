// An engine of a replay: a process of its own that does with the node what a model server would.
#pragma once

#include <cstdint>

#include "commands/replay/shared_plan.hpp"
#include "core/error.hpp"

namespace CLI {
class App;
}

namespace cenote::replay {

/// Serves the requests of engine `number` until all are done, or the plan says stop. Fails when the node is of no use
/// any more; a request that fails alone is counted.
[[nodiscard]] result<void> run_engine(const shared_plan& plan, std::uint32_t number);

}  // namespace cenote::replay

namespace cenote {

/// The hidden subcommand `replay-engine`: what `cenote replay` starts.
void add_replay_engine(CLI::App& app);

}  // namespace cenote
