#include "commands/services/manager.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <csignal>
#include <memory>
#include <string>

#include "commands/common.hpp"
#include "commands/services/service_signals.hpp"
#include "config/logging.hpp"
#include "config/manager_rules.hpp"
#include "services/manager/service/journal_choice.hpp"
#include "services/manager/service/manager_process.hpp"

namespace cenote {

namespace {

exit_code run_manager(const config_options& options) {
  const auto loaded = options.load();
  if (!loaded) return failed_with(loaded.error());
  if (auto logging = init_logging(loaded->log.level, loaded->log.format); !logging) return failed_with(logging.error());
  const sigset_t signals = block_service_signals();
  auto service = manager::manager_process::start(*loaded);
  if (!service) return failed_with(service.error());
  for (const auto& [name, address] : (*service)->addresses()) {
    log_info(logger("manager"), "answers", {{"service", name}, {"address", address.text()}});
  }
  for (int number = 0; number != SIGTERM && number != SIGINT;) {
    number = next_service_signal(signals);
    if (number != SIGHUP) continue;
    const auto again = config::load(options.sources());
    const auto levels = again ? set_levels(again->log.level) : std::unexpected(again.error());
    if (!levels) log_warn(logger("manager"), "the levels are not reloaded", {{"reason", levels.error().message()}});
  }
  log_info(logger("manager"), "stops", {});
  (*service)->stop();
  return exit_code::orderly;
}

exit_code check_manager_keys(const config_options& options) {
  const auto loaded = options.load();
  if (!loaded) return failed_with(loaded.error());
  if (auto checked = config::check_manager(*loaded); !checked) return failed_with(checked.error());
  const std::string state_dir = config::manager_state_dir(*loaded);
  if (auto opener = manager::journal_opener_of(loaded->manager, state_dir); !opener) {
    return failed_with(opener.error());
  }
  fmt::print("the configuration is valid; the state is kept in {}\n", state_dir);
  return exit_code::orderly;
}

}  // namespace

void add_manager(CLI::App& app) {
  auto* command = app.add_subcommand("manager", "Run a manager: where each block of a fleet's storages is");
  command->footer("Exit codes: 0 ended in order, 1 failed, 2 wrong command line or configuration.");
  auto options = std::make_shared<config_options>();
  options->add_to(*command);
  auto* check = command->add_subcommand("check", "Would a manager start with this?");
  auto check_options = std::make_shared<config_options>();
  check_options->add_to(*check);
  check->callback([check_options] { end_with(check_manager_keys(*check_options)); });
  command->callback([command, options] {
    if (command->get_subcommands().empty()) end_with(run_manager(*options));
  });
}

}  // namespace cenote
