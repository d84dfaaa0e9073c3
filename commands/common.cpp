#include "commands/common.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>

#include "core/process_setup.hpp"
#include "core/runtime_paths.hpp"
#include "core/text.hpp"
#include "core/version.hpp"
#include "transport/local/admin_client.hpp"

namespace cenote {

using nlohmann::json;

namespace {

// The codes that callbacks end with pass; CLI11's own errors are all one thing to a user.
int exit_value(const CLI::ParseError& end, int reported) {
  if (end.get_name() == "RuntimeError" || reported == 0) return reported;
  return to_int(exit_code::usage);
}

}  // namespace

void socket_option::add_to(CLI::App& command) {
  static const std::string found = default_socket_path();  // once for all subcommands: it looks at files
  path = found;
  command.add_option("--socket", path, "The node's socket ($CENOTE_SOCKET, else the one in the runtime directory)")
      ->capture_default_str();
}

void config_options::add_to(CLI::App& command) {
  if (const char* const variable = std::getenv("CENOTE_CONFIG")) file = variable;
  command.add_option("--config", file, "Configuration file (TOML); none is needed, '' is none")->capture_default_str();
  command.add_option("--set", sets, "key=value, above file and environment; may be repeated");
}

config::config_sources config_options::sources() const {
  config::config_sources out;
  if (!file.empty()) out.file = file;
  out.environment = config::process_environment();
  out.sets = sets;
  return out;
}

result<config::node_config> config_options::load() const {
  const config::config_sources from = sources();
  for (std::string& each : config::near_misses(from.environment)) {
    complain({error_code::invalid_config, std::move(each)});
  }
  auto loaded = config::load(from);
  const char* const variable = std::getenv("CENOTE_CONFIG");
  const bool is_named_there = variable != nullptr && !file.empty() && file == variable;
  if (!loaded && is_named_there && ::access(file.c_str(), R_OK) != 0)
    return std::unexpected(loaded.error().in("CENOTE_CONFIG"));
  return loaded;
}

std::vector<std::string> config_options::as_arguments() const {
  // Also that there is none: another process does not search anew.
  std::vector<std::string> out{"--config", file.empty() ? file : std::filesystem::absolute(file).native()};
  for (const auto& set : sets) {
    out.emplace_back("--set");
    out.push_back(set);
  }
  return out;
}

void clear_screen() {
  if (::isatty(STDOUT_FILENO) == 1) fmt::print("\x1b[H\x1b[2J");
}

void complain(const error& why) {
  const auto line = fmt::format("cenote: {}\n", printable(why.message()));
  std::fputs(line.c_str(), stderr);
}

exit_code failed_with(const error& why) {
  complain(why);
  const bool wrongly_written = why.code() == error_code::invalid_config || why.code() == error_code::invalid_argument;
  return wrongly_written ? exit_code::usage : exit_code::failed;
}

void end_with(exit_code code) {
  if (code != exit_code::orderly) throw CLI::RuntimeError(to_int(code));
}

int run_program(CLI::App& app, void (*add_subcommands)(CLI::App&), int argc, char** argv) {
  if (const auto ready = set_up_process(); !ready) {
    complain(ready.error());
    return to_int(exit_code::failed);
  }
  // Not required: CLI11 would say so instead of naming a misspelt one.
  app.require_subcommand(0, 1);
  app.set_version_flag("--version", std::string(product_version()));
  app.failure_message([](const CLI::App* program, const CLI::Error& failure) {
    return fmt::format("cenote: {}; see `{} --help`\n", failure.what(), program->get_name());
  });
  try {
    add_subcommands(app);
    app.parse(argc, argv);
    if (app.get_subcommands().empty()) throw CLI::CallForHelp();
  } catch (const CLI::ParseError& end) {
    return exit_value(end, app.exit(end));
  } catch (const std::exception& failure) {
    complain({error_code::internal, failure.what()});
    return to_int(exit_code::failed);
  }
  return 0;
}

result<json> ask(const std::string& socket, const json& request, std::chrono::milliseconds limit) {
  const auto reply = local::ask_node(socket, request.dump(-1, ' ', false, json::error_handler_t::replace), limit);
  if (!reply) return std::unexpected(reply.error());
  auto parsed = json::parse(*reply, nullptr, false);
  if (!parsed.is_object()) return fail(error_code::malformed, "the node's answer is not a JSON object");
  return parsed;
}

const json& member(const json& object, std::string_view name) {
  static const json nothing;
  if (!object.is_object()) return nothing;
  const auto found = object.find(name);
  return found == object.end() ? nothing : *found;
}

double to_number(const json& value) {
  return value.is_number() ? value.get<double>() : 0.0;
}

std::uint64_t to_count(const json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>();
  const double number = to_number(value);
  // Beyond 2^53 a double is no count any more, and its conversion may be undefined.
  return number >= 0 && number < 9e15 ? static_cast<std::uint64_t>(std::llround(number)) : 0;
}

double number_of(const json& object, std::string_view name) {
  return to_number(member(object, name));
}

std::uint64_t count_of(const json& object, std::string_view name) {
  return to_count(member(object, name));
}

std::string text_of(const json& object, std::string_view name) {
  const auto& value = member(object, name);
  if (value.is_null()) return "-";
  return value.is_string() ? printable(value.get<std::string>())
                           : value.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace cenote
