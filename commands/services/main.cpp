// The program cenote-services, which `cenote indexer` and `cenote manager` execute.
#include <CLI/CLI.hpp>

#include "commands/common.hpp"
#include "commands/services/indexer.hpp"
#include "commands/services/manager.hpp"

namespace {

void add_services(CLI::App& app) {
  cenote::add_indexer(app);
  cenote::add_manager(app);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Services around Cenote's nodes", "cenote");
  return cenote::run_program(app, add_services, argc, argv);
}
