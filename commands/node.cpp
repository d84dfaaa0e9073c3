#include "commands/node.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "commands/common.hpp"
#include "commands/refusal.hpp"
#include "config/logging.hpp"
#include "config/machine_file.hpp"
#include "keeper/keeper.hpp"
#include "memory/process_limits.hpp"
#include "worker/prerequisites.hpp"
#include "worker/stop_limit.hpp"
#include "worker/worker.hpp"

namespace cenote {

namespace {

using namespace std::chrono_literals;

constexpr auto upgrade_limit = 20s;
constexpr auto upgrade_poll = 20ms;

struct node_options {
  config_options config;
  int resume_fd = -1;
};

// What the keeper itself needs of a configuration.
void configure(keeper_options& keeper, const config::node_config& config) {
  keeper.socket = config::socket_path(config);
  keeper.runtime_dir = config::runtime_dir(config);
  keeper.hang_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(config.node.hang_timeout);
  // Whoever asks for a longer drain than 10 s gets it, and time to write blocks down behind it.
  keeper.stop_limit = std::max(keeper_options{}.stop_limit,
                               std::chrono::duration_cast<std::chrono::milliseconds>(config::stop_time(config)));
}

// After an upgrade, or when a worker accepted an edited one. It cannot be broken: the worker has read it as well.
void reconfigure(keeper_options& keeper, const std::string& running) {
  const auto config = config::load_running(running);
  if (!config) {
    log_warn(logger("keeper"), "the running configuration is of another version; the keeper goes on as it started",
             {{"reason", config.error().message()}});
    return;
  }
  configure(keeper, *config);
  [[maybe_unused]] const auto set = set_levels(config->log.level);
}

// Other warnings refuse a start, or end by themselves; this one would show at the end of the node's life alone.
void log_short_stop(std::span<const finding> findings) {
  for (const finding& one : findings) {
    if (one.severity != finding::level::warn || one.key != stop_limit_key) continue;
    log_warn(logger("keeper"), "a stop in order may be cut short", {{"limit", one.state}, {"remedy", one.remedy}});
  }
}

exit_code run_node(const node_options& options) {
  const auto loaded = options.config.load();
  if (!loaded) return failed_with(loaded.error());
  const bool resumed = options.resume_fd >= 0;
  // A successor has memory, paths and ports already.
  const auto findings = resumed ? std::vector<finding>() : check_prerequisites(*loaded);
  if (const auto refused = refuse(findings)) return *refused;
  memory::raise_process_limits(loaded->dram.capacity);
  if (auto logging = init_logging(loaded->log.level, loaded->log.format); !logging) return failed_with(logging.error());
  log_short_stop(findings);
  keeper_options how;
  configure(how, *loaded);
  how.running = config::running_text(*loaded);
  how.on_running = reconfigure;
  how.arguments = options.config.as_arguments();
  if (resumed) how.resume_fd = options.resume_fd;
  return keeper(std::move(how)).run();
}

// The worker of the new version answers on the same socket, with a later epoch.
exit_code wait_for_successor(const std::string& socket, std::uint64_t old_epoch) {
  const auto until = std::chrono::steady_clock::now() + upgrade_limit;
  while (std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(upgrade_poll);
    const auto status = ask(socket, {{"command", "status"}});
    if (!status) continue;
    const auto& node = member(*status, "node");
    if (count_of(node, "epoch") <= old_epoch) continue;
    fmt::print("upgraded: version {}, worker {} (epoch {})\n", text_of(node, "version"), text_of(node, "worker_pid"),
               text_of(node, "epoch"));
    return exit_code::orderly;
  }
  return failed_with({error_code::deadline_exceeded,
                      "the node took the upgrade but does not answer yet; its log says what it is doing"});
}

exit_code run_upgrade(const std::string& socket) {
  const auto before = ask(socket, {{"command", "status"}});
  if (!before) return failed_with(before.error());
  const auto reply = ask(socket, {{"command", "upgrade"}}, upgrade_limit);
  // A worker that is quick to go may close the connection before its answer is out.
  if (!reply && reply.error().code() != error_code::node_restarting) return failed_with(reply.error());
  return wait_for_successor(socket, count_of(member(*before, "node"), "epoch"));
}

struct worker_command {
  config_options config;
  int keeper_fd = -1;
};

}  // namespace

void add_node(CLI::App& app) {
  auto* command = app.add_subcommand("node", "Run a node in the foreground");
  command->footer(
      "Exit codes: 0 ended in order, 1 failed, 2 wrong command line or configuration, 3 a node runs there\n"
      "already, 4 the worker keeps dying before it is ready, 130 ended at once by a second signal.");
  auto options = std::make_shared<node_options>();
  options->config.file = config::machine_file();
  options->config.add_to(*command);
  command->add_option("--resume", options->resume_fd)->group("");
  auto* upgrade = command->add_subcommand("upgrade", "Replace a running node's program; its blocks stay");
  auto where = std::make_shared<socket_option>();
  where->add_to(*upgrade);
  upgrade->callback([where] { end_with(run_upgrade(where->path)); });
  command->callback([command, options] {
    if (command->get_subcommands().empty()) end_with(run_node(*options));
  });
}

void add_worker(CLI::App& app) {
  // Started by the keeper alone, so nobody needs to see it.
  auto* command = app.add_subcommand("worker", "")->group("");
  auto options = std::make_shared<worker_command>();
  options->config.add_to(*command);
  command->add_option("--keeper-fd", options->keeper_fd)->required();
  command->callback([options] {
    const int status = run_worker({.keeper_fd = options->keeper_fd, .sources = options->config.sources()});
    if (status != 0) throw CLI::RuntimeError(status);
  });
}

}  // namespace cenote
