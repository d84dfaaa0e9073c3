#include <CLI/CLI.hpp>

#include "commands/common.hpp"
#include "commands/services/admin.hpp"
#include "commands/services/manager.hpp"

namespace cenote {

namespace {

void add_absent(CLI::App& app, const char* name, const char* description) {
  auto* command = app.add_subcommand(name, description);
  command->prefix_command();
  command->callback([] {
    end_with(failed_with({error_code::unsupported, "this build is without gRPC, which the manager needs"}));
  });
}

}  // namespace

void add_manager(CLI::App& app) {
  add_absent(app, "manager", "Run a manager: this build is without gRPC, and so without it");
}

void add_admin(CLI::App& app) {
  add_absent(app, "admin", "Ask and change a manager: this build is without gRPC, and so without it");
}

}  // namespace cenote
