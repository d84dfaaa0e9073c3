#include "commands/operator/config.hpp"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "commands/common.hpp"
#include "commands/refusal.hpp"
#include "config/document.hpp"
#include "config/machine_file.hpp"
#include "core/text.hpp"
#include "worker/prerequisites.hpp"

namespace cenote {

namespace {

exit_code run_show(const config_options& options) {
  const auto loaded = options.load();
  if (!loaded) return failed_with(loaded.error());
  fmt::print("# file: {}\n\n{}", options.file.empty() ? "none" : printable(options.file),
             config::to_toml(config::effective(*loaded)));
  return exit_code::orderly;
}

// What `cenote node` checks before it starts, and what it would wait for.
exit_code run_check(const config_options& options) {
  const auto loaded = options.load();
  if (!loaded) return failed_with(loaded.error());
  const auto findings = check_prerequisites(*loaded);
  print_warnings(findings);
  if (const auto refused = refuse(findings)) {
    complain({error_code::invalid_config,
              fmt::format("checked as uid {}: where another user runs the node, let that user check", ::geteuid())});
    return *refused;
  }
  fmt::print("the configuration is valid; the node's socket is {}\n", printable(config::socket_path(*loaded)));
  return exit_code::orderly;
}

}  // namespace

void add_config(CLI::App& app) {
  auto* command = app.add_subcommand("config", "The configuration, without starting anything");
  command->require_subcommand(1);
  auto options = std::make_shared<config_options>();
  options->file = config::machine_file();
  auto* show = command->add_subcommand("show", "All values with their sources, as a configuration file");
  options->add_to(*show);
  show->callback([options] { end_with(run_show(*options)); });
  auto* check = command->add_subcommand("check", "Would a node start with this?");
  options->add_to(*check);
  check->callback([options] { end_with(run_check(*options)); });
  auto* document = command->add_subcommand("document", "docs/configuration.md");
  document->callback([] { fmt::print("{}", config::document_schema()); });
}

}  // namespace cenote
