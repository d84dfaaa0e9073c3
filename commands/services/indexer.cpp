#include "commands/services/indexer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "commands/common.hpp"
#include "commands/services/indexer_client.hpp"
#include "commands/services/service_signals.hpp"
#include "config/indexer_rules.hpp"
#include "config/logging.hpp"
#include "services/indexer/service/indexer_process.hpp"

namespace cenote {

namespace {

void reload(indexer::indexer_process& service, const config_options& options) {
  const auto log = logger("indexer");
  const auto loaded = config::load(options.sources());
  const auto taken = loaded ? service.reload(*loaded) : std::unexpected(loaded.error());
  if (!taken) {
    log_warn(log, "the configuration is not reloaded", {{"reason", taken.error().message()}});
    return;
  }
  [[maybe_unused]] const auto levels = set_levels(loaded->log.level);
  log_info(log, "configuration reloaded", {});
}

exit_code run_indexer(const config_options& options) {
  const auto loaded = options.load();
  if (!loaded) return failed_with(loaded.error());
  if (auto logging = init_logging(loaded->log.level, loaded->log.format); !logging) return failed_with(logging.error());
  const sigset_t signals = block_service_signals();
  auto service = indexer::indexer_process::start(*loaded);
  if (!service) return failed_with(service.error());
  for (const endpoint& each : (*service)->addresses()) {
    log_info(logger("indexer"), "answers", {{"address", each.text()}});
  }
  for (const endpoint& each : (*service)->rpc_addresses()) {
    log_info(logger("indexer"), "speaks gRPC", {{"address", each.text()}});
  }
  for (const std::string& each : (*service)->bound_endpoints()) {
    log_info(logger("indexer"), "publishers may connect", {{"endpoint", each}});
  }
  for (;;) {
    const int number = next_service_signal(signals);
    if (number == SIGHUP) reload(**service, options);
    if (number == SIGTERM || number == SIGINT) break;
    (*service)->look();
  }
  log_info(logger("indexer"), "stops", {});
  (*service)->stop();
  return exit_code::orderly;
}

exit_code check_configuration(const config_options& options) {
  const auto loaded = options.load();
  if (!loaded) return failed_with(loaded.error());
  if (auto checked = config::check_indexer(*loaded); !checked) return failed_with(checked.error());
  fmt::print("the configuration is valid; {} publishers are configured\n", loaded->publishers.size());
  return exit_code::orderly;
}

}  // namespace

void add_indexer(CLI::App& app) {
  auto* command = app.add_subcommand("indexer", "Run an indexer: which pod holds the longest prefix of a prompt");
  command->footer("Exit codes: 0 ended in order, 1 failed, 2 wrong command line or configuration.");
  auto options = std::make_shared<config_options>();
  options->add_to(*command);
  auto* check = command->add_subcommand("check", "Would an indexer start with this?");
  auto check_options = std::make_shared<config_options>();
  check_options->add_to(*check);
  check->callback([check_options] { end_with(check_configuration(*check_options)); });
  add_indexer_client(*command);
  command->callback([command, options] {
    if (command->get_subcommands().empty()) end_with(run_indexer(*options));
  });
}

}  // namespace cenote
