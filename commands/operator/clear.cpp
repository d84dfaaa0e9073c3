#include "commands/operator/clear.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <memory>
#include <string>

#include "commands/common.hpp"
#include "core/text.hpp"

namespace cenote {

namespace {

struct clear_options {
  socket_option where;
  bool all = false;
  std::string instance;
};

exit_code run_clear(const clear_options& options) {
  if (options.all == !options.instance.empty()) {
    return failed_with({error_code::invalid_argument,
                        "clear needs either --all or --instance ID; `cenote status` lists the instances"});
  }
  nlohmann::json request{{"command", "clear"}};
  if (options.all) request["all"] = true;
  if (!options.all) request["instance"] = options.instance;
  // A full tier with busy readers takes a while.
  const auto reply = ask(options.where.path, request, std::chrono::seconds(60));
  if (!reply) return failed_with(reply.error());
  fmt::print("cleared {}{}\n", options.all ? "everything" : printable(options.instance),
             member(*reply, "cleared").is_number() ? fmt::format(": {} blocks", count_of(*reply, "cleared")) : "");
  return exit_code::orderly;
}

}  // namespace

void add_clear(CLI::App& app) {
  auto* command = app.add_subcommand("clear", "Forget cached blocks");
  auto options = std::make_shared<clear_options>();
  options->where.add_to(*command);
  command->add_flag("--all", options->all, "Blocks of all instances");
  command->add_option("--instance", options->instance, "Blocks of this instance");
  command->callback([options] { end_with(run_clear(*options)); });
}

}  // namespace cenote
