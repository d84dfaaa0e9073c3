#include "commands/operator/cluster.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "commands/common.hpp"
#include "commands/table.hpp"

namespace cenote {

namespace {

struct drain_options {
  socket_option where;
  std::uint64_t seconds = 30;
};

exit_code run_drain(const drain_options& options) {
  constexpr std::chrono::seconds to_answer(10);
  const auto reply = ask(options.where.path, {{"command", "drain"}, {"id", options.seconds}},
                         std::chrono::seconds(options.seconds) + to_answer);
  if (!reply) return failed_with(reply.error());
  fmt::print("{} blocks were handed on to their next homes; `cenote cluster rejoin` takes that back\n",
             count_of(*reply, "handed_on"));
  return exit_code::orderly;
}

exit_code run_rejoin(const socket_option& where) {
  const auto reply = ask(where.path, {{"command", "rejoin"}});
  if (!reply) return failed_with(reply.error());
  fmt::print("blocks belong to this node again\n");
  return exit_code::orderly;
}

exit_code run_write_off(const socket_option& socket, const std::string& node) {
  const auto reply = ask(socket.path, {{"command", "write_off"}, {"node", node}});
  if (!reply) return failed_with(reply.error());
  fmt::print("{} is written off; {} removals do not wait for it any more\n", node, count_of(*reply, "released"));
  return exit_code::orderly;
}

}  // namespace

void add_cluster(CLI::App& app) {
  auto* command = app.add_subcommand("cluster", "This node's part in its cluster");
  command->require_subcommand(1);
  auto* drain = command->add_subcommand(
      "drain",
      "Before this node is stopped: no block belongs to it any more, and what it has in DRAM is offered to the "
      "blocks' next homes, most recently used first");
  auto options = std::make_shared<drain_options>();
  options->where.add_to(*drain);
  drain->add_option("--time", options->seconds, "Seconds that this may take; what is not handed on by then stays")
      ->check(CLI::Range(1, 3600))
      ->capture_default_str();
  drain->callback([options] { end_with(run_drain(*options)); });
  auto* rejoin = command->add_subcommand("rejoin", "Blocks belong to this node again, as before `drain`");
  auto where = std::make_shared<socket_option>();
  where->add_to(*rejoin);
  rejoin->callback([where] { end_with(run_rejoin(*where)); });
  auto* write_off = command->add_subcommand(
      "write-off",
      "Another node never comes back: removals wait for it no more, on all nodes. If it comes back all the same, it "
      "clears its blocks before any of them is used");
  auto node = std::make_shared<std::string>();
  where->add_to(*write_off);
  write_off->add_option("node", *node, "Its cluster.name")->required();
  write_off->callback([where, node] { end_with(run_write_off(*where, *node)); });
}

}  // namespace cenote
