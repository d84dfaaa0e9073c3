#include "commands/services/admin/session.hpp"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <utility>

#include "commands/table.hpp"
#include "core/text.hpp"
#include "transport/manager/message_json.hpp"

namespace cenote::admin {

using nlohmann::json;

namespace {

constexpr const char* default_account = "admin";

/// --manager, else the configuration's port on loopback.
result<std::vector<endpoint>> admin_addresses(const admin_options& options) {
  if (!options.managers.empty()) return manager::parse_addresses(options.managers);
  const auto loaded = options.config.load();
  if (!loaded) return std::unexpected(loaded.error());
  const std::uint16_t port = loaded->manager.admin_rpc_port;
  if (port == 0) {
    return fail(error_code::invalid_config, "manager.admin_rpc_port is 0: --manager names a manager's admin port");
  }
  return std::vector{endpoint{.host = "127.0.0.1", .port = port}};
}

result<std::shared_ptr<manager::manager_client>> client_of(const admin_options& options,
                                                           std::vector<endpoint> addresses,
                                                           std::vector<endpoint> meta) {
  manager::client_options out{.meta = std::move(meta), .admin = std::move(addresses), .tls = options.tls};
  if (!options.password_file.empty()) {
    out.account = options.account.empty() ? default_account : options.account;
    out.password_file = options.password_file;
  } else if (!options.account.empty()) {
    return fail(error_code::invalid_argument, "--account needs --password-file");
  }
  auto made = manager::manager_client::make(out);
  if (!made) return std::unexpected(made.error());
  return std::shared_ptr<manager::manager_client>(std::move(*made));
}

void flatten(const std::string& place, const json& value, table& rows) {
  if (value.is_object()) {
    for (const auto& [name, part] : value.items())
      flatten(fmt::format("{}{}{}", place, place.empty() ? "" : ".", name), part, rows);
  } else if (value.is_array()) {
    for (std::size_t i = 0; i < value.size(); ++i) flatten(fmt::format("{}[{}]", place, i), value[i], rows);
  } else if (const std::string text = value.is_string() ? value.get<std::string>() : value.dump(); !text.empty()) {
    rows.add({place, text});
  }
}

}  // namespace

void admin_options::add_to(CLI::App& command) {
  command.add_option(
      "--manager", managers,
      "HOST:PORT[,HOST:PORT] of managers' admin ports (gRPC); without it manager.admin_rpc_port on loopback");
  command.add_option("--meta", meta, "HOST:PORT[,HOST:PORT] of their meta ports; without it the leader's (cache trim)");
  command.add_option("--account", account, "Account that asks; without it `admin`, if there is a password");
  command.add_option("--password-file", password_file, "File with its password, which its owner alone may read");
  command.add_option("--ca", tls.ca, "Authorities of the managers' certificates, in PEM: TLS");
  command.add_option("--cert", tls.certificate, "Certificate of this client, in PEM");
  command.add_option("--key", tls.key, "Its private key");
  config.add_to(command);
  command.add_flag("--json", is_json, "Print JSON");
}

result<admin_session> admin_session::open(const admin_options& options) {
  ::setenv("GRPC_VERBOSITY", "NONE", 0);  // the complaint is the one line of a command
  auto addresses = admin_addresses(options);
  if (!addresses) return std::unexpected(addresses.error());
  std::vector<endpoint> meta;
  if (!options.meta.empty()) {
    auto parsed = manager::parse_addresses(options.meta);
    if (!parsed) return std::unexpected(parsed.error());
    meta = std::move(*parsed);
  }
  auto client = client_of(options, std::move(*addresses), std::move(meta));
  if (!client) return std::unexpected(client.error());
  admin_session session(options);
  session.client_ = std::move(*client);
  return session;
}

result<admin_session> admin_session::with_meta() const {
  if (!options_.meta.empty()) return *this;
  const auto cluster = ask<wire::admin::GetManagerClusterInfoResponse>(rpc::get_manager_cluster_info,
                                                                       wire::admin::GetManagerClusterInfoRequest());
  if (!cluster) return std::unexpected(cluster.error());
  const auto& leader = cluster->leader_endpoint();
  if (leader.meta_rpc_port() <= 0 || leader.meta_rpc_port() > UINT16_MAX) {
    return fail(error_code::not_running, "the leader has no meta port for gRPC: --meta names a manager that has");
  }
  admin_options options = options_;
  options.meta = endpoint{.host = leader.host(), .port = static_cast<std::uint16_t>(leader.meta_rpc_port())}.text();
  return open(options);
}

void admin_session::print_change(const std::string& sentence, const std::string& note) const {
  if (is_json()) return print_json({{"code", "OK"}, {"message", note}});
  fmt::print("{}\n", printable(sentence));
  for (std::size_t begin = 0; begin < note.size();) {
    const std::size_t end = std::min(note.find('\n', begin), note.size());
    fmt::print("  {}\n", printable(note.substr(begin, end - begin)));
    begin = end + 1;
  }
}

json to_json(const google::protobuf::Message& message) {
  std::string text;
  manager::write_json(message, text);
  return json::parse(text, nullptr, false);
}

json without_header(const google::protobuf::Message& response) {
  json value = to_json(response);
  if (value.is_object()) value.erase("header");
  return value;
}

void print_json(const json& value) {
  fmt::print("{}\n", value.dump(2, ' ', true, json::error_handler_t::replace));
}

void print_message(const admin_session& session, const google::protobuf::Message& message) {
  const json value = to_json(message);
  if (session.is_json()) return print_json(value);
  table rows({"FIELD", "VALUE"});
  flatten("", value, rows);
  fmt::print("{}", rows.text());
}

result<std::string> read_input(const std::string& path) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& source = path == "-" ? std::cin : file;
  if (!source) return fail(error_code::invalid_argument, "cannot read " + path);
  std::string text(manager::longest_json + 1, '\0');
  source.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (source.bad()) return fail(error_code::invalid_argument, "cannot read " + path);
  text.resize(static_cast<std::size_t>(source.gcount()));
  if (text.size() > manager::longest_json) return fail(error_code::invalid_argument, path + " is larger than 64 MiB");
  return text;
}

result<> read_message(const std::string& path, google::protobuf::Message& message) {
  const auto text = read_input(path);
  if (!text) return std::unexpected(text.error());
  const auto filled = manager::read_json(*text, message);
  if (!filled) return fail(error_code::invalid_argument, path + ": " + filled.error().cause.message);
  return {};
}

CLI::App& add_action(CLI::App& parent, const std::string& name, const std::string& description, admin_action act) {
  CLI::App* command = parent.add_subcommand(name, description);
  const auto options = std::make_shared<admin_options>();
  options->add_to(*command);
  command->callback([options, act = std::move(act)] {
    auto session = admin_session::open(*options);
    if (!session) return end_with(failed_with(session.error()));
    const auto done = act(*session);
    end_with(done ? exit_code::orderly : failed_with(done.error()));
  });
  return *command;
}

CLI::App& add_family(CLI::App& parent, const std::string& name, const std::string& description) {
  CLI::App* command = parent.add_subcommand(name, description);
  command->require_subcommand(1);
  return *command;
}

}  // namespace cenote::admin
