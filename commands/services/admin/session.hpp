// A manager that a command asks, and how its answers are printed.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "commands/common.hpp"
#include "transport/manager/client/manager_client.hpp"
#include "transport/manager/proto/admin.pb.h"

namespace cenote::admin {

namespace wire = ::kv_cache_manager::proto;
using manager::rpc;

/// The options that all subcommands have.
struct admin_options {
  std::string managers, meta;
  std::string account, password_file;
  manager::client_tls tls;
  config_options config;
  bool is_json = false;

  void add_to(CLI::App& command);
};

/// Texts go to standard output. Errors are those of the configuration and of calls.
class admin_session {
 public:
  [[nodiscard]] static result<admin_session> open(const admin_options& options);

  [[nodiscard]] bool is_json() const noexcept { return options_.is_json; }

  template <class Answer, class Request>
  [[nodiscard]] manager::call_outcome<Answer> call(enum rpc name, const Request& request) const {
    return client_->call<Answer>(name, request);
  }
  /// call() with the error of commands.
  template <class Answer, class Request>
  [[nodiscard]] result<Answer> ask(enum rpc name, const Request& request) const {
    auto answer = call<Answer>(name, request);
    if (!answer) return std::unexpected(manager::to_error(answer.error()));
    return std::move(*answer);
  }
  /// Makes a change, and prints `sentence` and the answer's message.
  template <class Answer = wire::admin::CommonResponse, class Request>
  [[nodiscard]] result<> change(enum rpc name, const Request& request, const std::string& sentence) const {
    const auto answer = ask<Answer>(name, request);
    if (!answer) return std::unexpected(answer.error());
    print_change(sentence, answer->header().status().message());
    return {};
  }
  void print_change(const std::string& sentence, const std::string& note) const;

  /// This session for MetaService: --meta, else the leader's port.
  [[nodiscard]] result<admin_session> with_meta() const;

 private:
  explicit admin_session(admin_options options) : options_(std::move(options)) {}

  admin_options options_;
  std::shared_ptr<manager::manager_client> client_;
};

/// A message as --json has it: proto3's JSON with all fields.
[[nodiscard]] nlohmann::json to_json(const google::protobuf::Message& message);
/// A response likewise, without its header.
[[nodiscard]] nlohmann::json without_header(const google::protobuf::Message& response);
/// A list of messages likewise.
template <class Messages>
[[nodiscard]] nlohmann::json list_json(const Messages& messages) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& each : messages) list.push_back(to_json(each));
  return list;
}
void print_json(const nlohmann::json& value);
/// A list as JSON, or as the table that `page` makes of it.
template <class Messages>
void print_list(const admin_session& session, const Messages& messages, std::string (*page)(const Messages&)) {
  if (session.is_json()) return print_json(list_json(messages));
  fmt::print("{}", page(messages));
}
/// A message's fields, one a line, or as JSON.
void print_message(const admin_session& session, const google::protobuf::Message& message);

/// A file's text, or that of standard input for "-". Errors: invalid_argument.
[[nodiscard]] result<std::string> read_input(const std::string& path);
/// A message in proto3's JSON. Errors: invalid_argument.
[[nodiscard]] result<> read_message(const std::string& path, google::protobuf::Message& message);

using admin_action = std::function<result<>(admin_session&)>;
/// A subcommand with the options of a session, which `act` gets; the caller adds its own ones.
CLI::App& add_action(CLI::App& parent, const std::string& name, const std::string& description, admin_action act);
/// A subcommand that only has subcommands.
CLI::App& add_family(CLI::App& parent, const std::string& name, const std::string& description);

void add_storages(CLI::App& admin);
void add_groups(CLI::App& admin);
void add_instances(CLI::App& admin);
void add_accounts(CLI::App& admin);
void add_cache(CLI::App& admin);
void add_leader(CLI::App& admin);
void add_snapshot(CLI::App& admin);
void add_levels(CLI::App& admin);
void add_status(CLI::App& admin);

}  // namespace cenote::admin
