// The tree of subcommands.
#include "commands/services/admin.hpp"

#include <CLI/CLI.hpp>

#include "commands/services/admin/session.hpp"

namespace cenote {

void add_admin(CLI::App& app) {
  CLI::App& command =
      admin::add_family(app, "admin", "Ask and change a manager: storages, groups, instances, accounts");
  command.footer(
      "Exit codes: 0 done, 1 failed or its outcome is not known, 2 wrong command line, configuration or arguments.");
  admin::add_status(command);
  admin::add_storages(command);
  admin::add_groups(command);
  admin::add_instances(command);
  admin::add_accounts(command);
  admin::add_cache(command);
  admin::add_leader(command);
  admin::add_snapshot(command);
  admin::add_levels(command);
}

}  // namespace cenote
