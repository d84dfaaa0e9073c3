#include "commands/operator/session.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <system_error>

#include "commands/common.hpp"
#include "core/text.hpp"

namespace cenote {

namespace {

struct kill_options {
  socket_option where;
  std::uint64_t id = 0;
};

/// CLI11's own check takes every real number, and says so with all the digits of the largest.
std::string is_number(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, status] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (status == std::errc{} && end == text.data() + text.size()) return {};
  return "`" + printable(text) + "` is no session's number; `cenote status` lists them";
}

exit_code run_kill(const kill_options& options) {
  const auto reply = ask(options.where.path, {{"command", "session_kill"}, {"id", options.id}});
  if (!reply) return failed_with(reply.error());
  fmt::print("session {} was ended\n", options.id);
  return exit_code::orderly;
}

}  // namespace

void add_session(CLI::App& app) {
  auto* command = app.add_subcommand("session", "One attached process");
  command->require_subcommand(1);
  auto* kill = command->add_subcommand("kill", "End a session and free its pins, whatever its process does");
  auto options = std::make_shared<kill_options>();
  options->where.add_to(*kill);
  kill->add_option("id", options->id, "The session's number, as `cenote status` shows it")
      ->required()
      ->check(is_number);
  kill->callback([options] { end_with(run_kill(*options)); });
}

}  // namespace cenote
