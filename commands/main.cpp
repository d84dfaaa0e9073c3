// The cenote binary: a file a subcommand, each adds itself.
#include <CLI/CLI.hpp>

#include "commands/common.hpp"
#include "commands/node.hpp"
#include "commands/operator/clear.hpp"
#include "commands/operator/cluster.hpp"
#include "commands/operator/config.hpp"
#include "commands/operator/debug.hpp"
#include "commands/operator/doctor.hpp"
#include "commands/operator/init.hpp"
#include "commands/operator/log_level.hpp"
#include "commands/operator/nvme.hpp"
#include "commands/operator/peers.hpp"
#include "commands/operator/session.hpp"
#include "commands/operator/status.hpp"
#include "commands/operator/top.hpp"
#include "commands/optimize/optimize.hpp"
#include "commands/programs.hpp"
#include "commands/quickstart.hpp"
#include "commands/replay/engine.hpp"
#include "commands/replay/replay.hpp"
#include "commands/trace/trace.hpp"

namespace {

void add_commands(CLI::App& app) {
  cenote::add_quickstart(app);
  cenote::add_node(app);
  cenote::add_worker(app);
  cenote::add_service_programs(app);
  cenote::add_status(app);
  cenote::add_top(app);
  cenote::add_peers(app);
  cenote::add_cluster(app);
  cenote::add_clear(app);
  cenote::add_debug(app);
  cenote::add_session(app);
  cenote::add_log_level(app);
  cenote::add_config(app);
  cenote::add_doctor(app);
  cenote::add_init(app);
  cenote::add_nvme(app);
  cenote::add_replay(app);
  cenote::add_replay_engine(app);
  cenote::add_optimize(app);
  cenote::add_trace(app);
  cenote::add_bench_program(app);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Cenote: a KV-cache node for LLM inference", "cenote");
  return cenote::run_program(app, add_commands, argc, argv);
}
