#include "commands/programs.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <filesystem>
#include <string_view>
#include <vector>

#include "commands/common.hpp"

namespace cenote {

namespace {

constexpr const char* process_file = "/proc/self/exe";

struct program {
  std::string_view file;
  std::vector<std::string> arguments;  ///< before those of the command line; the first is the program's name
};

// Empty when the system does not show it.
std::filesystem::path process_path() {
  std::error_code failure;
  return std::filesystem::read_symlink(process_file, failure);
}

// Returns only when the program could not be executed.
exit_code execute(program target, const std::vector<std::string>& arguments) {
  const std::string path = process_path().replace_filename(target.file);
  target.arguments.insert(target.arguments.end(), arguments.begin(), arguments.end());
  std::vector<char*> words;
  words.reserve(target.arguments.size() + 1);
  for (std::string& argument : target.arguments) words.push_back(argument.data());
  words.push_back(nullptr);
  ::execv(path.c_str(), words.data());
  return failed_with(fail_errno("execv", fmt::format("{} (a program of its own; in a checkout scripts/build release {} "
                                                     "makes it)",
                                                     path, target.file))
                         .error());
}

void add_program(CLI::App& app, const std::string& name, const std::string& description, program target) {
  auto* command = app.add_subcommand(name, description);
  command->set_help_flag();
  command->prefix_command();
  command->callback([command, target = std::move(target)] { end_with(execute(target, command->remaining())); });
}

}  // namespace

void add_bench_program(CLI::App& app) {
  add_program(app, "bench", "Measure, with this machine's limit from the same run beside it",
              {"cenote-bench", {"cenote bench"}});
}

void add_service_programs(CLI::App& app) {
  add_program(app, "indexer", "Run an indexer: which pod holds the longest prefix of a prompt",
              {"cenote-services", {"cenote", "indexer"}});
  add_program(app, "manager", "Run a manager: where each block of a fleet's storages is",
              {"cenote-services", {"cenote", "manager"}});
  add_program(app, "admin", "Ask and change a manager: storages, groups, instances, accounts",
              {"cenote-services", {"cenote", "admin"}});
}

std::string node_program() {
  constexpr std::array others{std::string_view("cenote-bench"), std::string_view("cenote-services")};
  const std::filesystem::path path = process_path();
  const std::string file = path.filename();
  if (std::ranges::find(others, file) == others.end()) return process_file;
  return std::filesystem::path(path).replace_filename("cenote");
}

}  // namespace cenote
