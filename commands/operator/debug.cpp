#include "commands/operator/debug.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>

#include "commands/common.hpp"

namespace cenote {

namespace {

struct corrupt_options {
  socket_option where;
  bool all = false;
};

exit_code run_corrupt(const corrupt_options& options) {
  if (!options.all) {
    return failed_with({error_code::invalid_argument, "corrupt needs --all: it alters the blocks of all instances"});
  }
  const auto reply = ask(options.where.path, {{"command", "corrupt"}}, std::chrono::seconds(60));
  if (!reply) return failed_with(reply.error());
  fmt::print("altered {} blocks; what was only on NVMe is forgotten\n", count_of(*reply, "altered"));
  return exit_code::orderly;
}

}  // namespace

void add_debug(CLI::App& app) {
  auto* command = app.add_subcommand("debug", "For tests of engines; the node has to run with debug.enabled=true");
  command->require_subcommand(1);
  auto* corrupt = command->add_subcommand(
      "corrupt", "XOR 0x8040 into every 16-bit word of all blocks in memory, and forget those on NVMe");
  auto options = std::make_shared<corrupt_options>();
  options->where.add_to(*corrupt);
  corrupt->add_flag("--all", options->all, "Blocks of all instances");
  corrupt->callback([options] { end_with(run_corrupt(*options)); });
}

}  // namespace cenote
