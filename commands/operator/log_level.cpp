#include "commands/operator/log_level.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include "commands/common.hpp"

namespace cenote {

namespace {

struct log_level_options {
  socket_option where;
  std::string level;
};

exit_code run_log_level(const log_level_options& options) {
  const auto reply = ask(options.where.path, {{"command", "log_level"}, {"level", options.level}});
  if (!reply) return failed_with(reply.error());
  fmt::print("the node logs at {} until it is reloaded or restarted\n", options.level);
  return exit_code::orderly;
}

}  // namespace

void add_log_level(CLI::App& app) {
  auto* command = app.add_subcommand("log-level", "Change what a running node logs");
  auto options = std::make_shared<log_level_options>();
  options->where.add_to(*command);
  command->add_option("level", options->level, "As the key log.level: \"info,session=debug\"")->required();
  command->callback([options] { end_with(run_log_level(*options)); });
}

}  // namespace cenote
