#include <CLI/CLI.hpp>

#include "commands/common.hpp"
#include "commands/services/manager.hpp"

namespace cenote {

void add_manager(CLI::App& app) {
  auto* command = app.add_subcommand("manager", "Run a manager: this build is without gRPC, and so without it");
  command->prefix_command();
  command->callback([] {
    end_with(failed_with({error_code::unsupported, "this build is without gRPC, which the manager needs"}));
  });
}

}  // namespace cenote
