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

struct partition_options {
  socket_option where;
  std::string from, to;
  std::string direction = "both";
};

exit_code run_partition(const partition_options& options) {
  const auto reply = ask(
      options.where.path,
      {{"command", "partition"}, {"from", options.from}, {"to", options.to}, {"both", options.direction == "both"}});
  if (!reply) return failed_with(reply.error());
  const char* const meaning = options.direction == "both" ? "and back " : "";
  fmt::print("what {} sends to {} {}is lost from now on; `cenote debug heal` ends it\n", options.from, options.to,
             meaning);
  return exit_code::orderly;
}

exit_code run_heal(const socket_option& where) {
  const auto reply = ask(where.path, {{"command", "heal"}});
  if (!reply) return failed_with(reply.error());
  fmt::print("nothing is lost any more\n");
  return exit_code::orderly;
}

void add_partition(CLI::App& to) {
  auto* command = to.add_subcommand("partition", "Lose what two nodes of a cluster send each other; asked of either");
  auto options = std::make_shared<partition_options>();
  options->where.add_to(*command);
  command->add_option("from", options->from, "A node's name")->required();
  command->add_option("to", options->to, "Another one's; this node is one of the two")->required();
  command->add_option("direction", options->direction, "both, or one: only what FROM sends to TO")
      ->check(CLI::IsMember({"both", "one"}));
  command->callback([options] { end_with(run_partition(*options)); });
  auto* heal = to.add_subcommand("heal", "End all partitions of this node");
  auto where = std::make_shared<socket_option>();
  where->add_to(*heal);
  heal->callback([where] { end_with(run_heal(*where)); });
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
  add_partition(*command);
}

}  // namespace cenote
