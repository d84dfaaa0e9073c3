// The program cenote-services, which `cenote indexer`, `cenote manager` and `cenote admin` execute.
#include <CLI/CLI.hpp>

#include "commands/common.hpp"
#include "commands/services/admin.hpp"
#include "commands/services/indexer.hpp"
#include "commands/services/manager.hpp"

namespace {

void add_services(CLI::App& app) {
  cenote::add_indexer(app);
  cenote::add_manager(app);
  cenote::add_admin(app);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Services around Cenote's nodes", "cenote");
  return cenote::run_program(app, add_services, argc, argv);
}
