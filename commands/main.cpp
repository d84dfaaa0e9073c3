// The cenote binary: a file a subcommand, each adds itself.
#include <CLI/CLI.hpp>
#include <exception>

#include "commands/bench/bench.hpp"
#include "commands/common.hpp"
#include "commands/node.hpp"
#include "commands/operator/clear.hpp"
#include "commands/operator/cluster.hpp"
#include "commands/operator/config.hpp"
#include "commands/operator/debug.hpp"
#include "commands/operator/doctor.hpp"
#include "commands/operator/log_level.hpp"
#include "commands/operator/nvme.hpp"
#include "commands/operator/peers.hpp"
#include "commands/operator/session.hpp"
#include "commands/operator/status.hpp"
#include "commands/operator/top.hpp"
#include "commands/replay/engine.hpp"
#include "commands/replay/replay.hpp"
#include "keeper/exit_code.hpp"

namespace {

void add_commands(CLI::App& app) {
  cenote::add_node(app);
  cenote::add_worker(app);
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
  cenote::add_nvme(app);
  cenote::add_replay(app);
  cenote::add_replay_engine(app);
  cenote::add_bench(app);
}

// The codes that our own callbacks end with pass; CLI11's own errors are all one thing to a user.
int code_of(const CLI::ParseError& why, int reported) {
  if (why.get_name() == "RuntimeError" || reported == 0) return reported;
  return cenote::to_int(cenote::exit_code::usage);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Cenote: a KV-cache node for LLM inference", "cenote");
  // Not required: CLI11 would say so instead of naming a misspelt one.
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", CENOTE_VERSION);
  app.failure_message([](const CLI::App*, const CLI::Error& why) {
    return std::string("cenote: ") + why.what() + "; see `cenote --help`\n";
  });
  try {
    add_commands(app);
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::CallForHelp();
  } catch (const CLI::ParseError& why) {
    return code_of(why, app.exit(why));
  } catch (const std::exception& why) {
    cenote::complain({cenote::error_code::internal, why.what()});
    return cenote::to_int(cenote::exit_code::failed);
  }
  return 0;
}
