#include "commands/bench_program.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string_view>
#include <vector>

#include "commands/common.hpp"

namespace cenote {

namespace {

constexpr std::string_view bench_name = "cenote-bench";
constexpr const char* own_file = "/proc/self/exe";

// Empty when the system does not show it.
std::filesystem::path own_path() {
  std::error_code failure;
  return std::filesystem::read_symlink(own_file, failure);
}

// Returns only when the program could not be executed.
exit_code execute_benches(std::vector<std::string> arguments) {
  const std::string program = own_path().replace_filename(bench_name);
  arguments.insert(arguments.begin(), "cenote bench");
  std::vector<char*> words;
  words.reserve(arguments.size() + 1);
  for (std::string& argument : arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  ::execv(program.c_str(), words.data());
  return failed_with(fail_errno("execv", program + " (the benches are a program of their own; in a checkout "
                                                   "scripts/build release cenote-bench makes it)")
                         .error());
}

}  // namespace

void add_bench_program(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Measure, with this machine's limit from the same run beside it");
  command->set_help_flag();
  command->prefix_command();
  command->callback([command] { end_with(execute_benches(command->remaining())); });
}

std::string node_program() {
  std::filesystem::path own = own_path();
  if (own.filename() != bench_name) return own_file;
  return own.replace_filename("cenote");
}

}  // namespace cenote
