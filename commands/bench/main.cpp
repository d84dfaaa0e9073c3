// The program cenote-bench, which `cenote bench` executes.
#include <CLI/CLI.hpp>

#include "commands/bench/bench.hpp"
#include "commands/common.hpp"

int main(int argc, char** argv) {
  CLI::App app("Measure, with this machine's limit from the same run beside it", "cenote bench");
  return cenote::run_program(app, cenote::add_benches, argc, argv);
}
