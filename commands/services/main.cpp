// The program cenote-services, which `cenote indexer` executes.
#include <CLI/CLI.hpp>

#include "commands/common.hpp"
#include "commands/services/indexer.hpp"

namespace {

void add_services(CLI::App& app) {
  cenote::add_indexer(app);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Services around Cenote's nodes", "cenote");
  return cenote::run_program(app, add_services, argc, argv);
}
