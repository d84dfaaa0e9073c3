// What the subcommands share: options, one-line errors, exit codes, and tolerant reading of the node's JSON.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/node_config.hpp"
#include "config/sources.hpp"
#include "core/error.hpp"
#include "keeper/exit_code.hpp"

namespace CLI {
class App;
}

namespace cenote {

/// The address of a node, for subcommands that talk to one.
struct socket_option {
  std::string path;

  void add_to(CLI::App& command);
};

/// --config and --set, for subcommands that read the configuration.
struct config_options {
  std::string file;  ///< empty: none. A name before add_to() is the one that --config and $CENOTE_CONFIG replace
  std::vector<std::string> sets;

  void add_to(CLI::App& command);

  /// With this process's environment.
  [[nodiscard]] config::config_sources sources() const;
  /// The configuration of the sources. Prints a line for each environment variable that is almost a key.
  [[nodiscard]] result<config::node_config> load() const;

  /// The same options for another process of this program; the file's path is absolute.
  [[nodiscard]] std::vector<std::string> as_arguments() const;
};

/// Clears the terminal that standard output is; a file or a pipe gets one answer behind the other.
void clear_screen();

/// Prints "cenote: message" on standard error.
void complain(const error& why);

/// complain(), and the exit code that fits: usage for what a person wrote wrongly, else failed.
[[nodiscard]] exit_code failed_with(const error& why);

/// Ends a CLI11 callback: throws CLI::RuntimeError unless the code is orderly, as CLI11 wants it.
void end_with(exit_code code);

/// The body of main(): adds the subcommands to `app`, parses the command line, runs at most one of them, help without
/// one. Returns the process's exit code.
[[nodiscard]] int run_program(CLI::App& app, void (*add_subcommands)(CLI::App&), int argc, char** argv);

/// Asks a node; the reply is a JSON object. Errors as local::ask_node, and malformed.
[[nodiscard]] result<nlohmann::json> ask(const std::string& socket, const nlohmann::json& request,
                                         std::chrono::milliseconds limit = std::chrono::seconds(10));

/// Members of objects that may lack them or hold something else.
[[nodiscard]] const nlohmann::json& member(const nlohmann::json& object, std::string_view name);
/// 0 where there is no number, or none that counts.
[[nodiscard]] double to_number(const nlohmann::json& value);
[[nodiscard]] std::uint64_t to_count(const nlohmann::json& value);
[[nodiscard]] std::uint64_t count_of(const nlohmann::json& object, std::string_view name);
[[nodiscard]] double number_of(const nlohmann::json& object, std::string_view name);
/// For a terminal: strings as core/text's printable() shows them, other values as JSON, a missing one as "-".
[[nodiscard]] std::string text_of(const nlohmann::json& object, std::string_view name);

}  // namespace cenote
