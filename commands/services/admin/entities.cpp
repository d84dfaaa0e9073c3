// Storages, groups, instances and accounts.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <vector>

#include "commands/services/admin/pages.hpp"
#include "commands/services/admin/session.hpp"
#include "core/text.hpp"
#include "transport/manager/client/client_options.hpp"

namespace cenote::admin {

namespace {

constexpr int most_pause_attempts = 5;

template <class Request>
result<> change_storage(admin_session& session, enum rpc name, const std::string& storage, const std::string& verb) {
  Request request;
  request.set_storage_unique_name(storage);
  return session.change(name, request, fmt::format("storage {} is {}", storage, verb));
}

result<> list_storages(admin_session& session) {
  const auto answer =
      session.ask<wire::admin::ListStorageResponse>(rpc::list_storage, wire::admin::ListStorageRequest());
  if (!answer) return std::unexpected(answer.error());
  print_list(session, answer->storage(), storages_page);
  return {};
}

result<> show_storage(admin_session& session, const std::string& name) {
  const auto answer =
      session.ask<wire::admin::ListStorageResponse>(rpc::list_storage, wire::admin::ListStorageRequest());
  if (!answer) return std::unexpected(answer.error());
  const auto& storages = answer->storage();
  const auto storage =
      std::ranges::find_if(storages, [&](const auto& each) { return each.global_unique_name() == name; });
  if (storage == storages.end()) return fail(error_code::system, "there is no storage " + name);
  print_message(session, *storage);
  return {};
}

result<> put_storage(admin_session& session, const std::string& path) {
  wire::admin::AddStorageRequest request;
  if (auto filled = read_message(path, *request.mutable_storage()); !filled) return filled;
  return session.change(rpc::add_storage, request,
                        fmt::format("storage {} is there", request.storage().global_unique_name()));
}

result<> update_storage(admin_session& session, const std::string& path, bool is_forced) {
  wire::admin::UpdateStorageRequest request;
  if (auto filled = read_message(path, *request.mutable_storage()); !filled) return filled;
  request.set_force_update(is_forced);
  return session.change(rpc::update_storage, request,
                        fmt::format("storage {} is updated", request.storage().global_unique_name()));
}

result<> remove_storage(admin_session& session, const std::string& name, bool is_forced) {
  wire::admin::RemoveStorageRequest request;
  request.set_storage_unique_name(name);
  request.set_force(is_forced);
  return session.change(rpc::remove_storage, request, fmt::format("storage {} is removed", name));
}

result<> list_groups(admin_session& session) {
  const auto answer = session.ask<wire::admin::ListInstanceGroupResponse>(rpc::list_instance_group,
                                                                          wire::admin::ListInstanceGroupRequest());
  if (!answer) return std::unexpected(answer.error());
  print_list(session, answer->instance_group(), groups_page);
  return {};
}

result<wire::admin::InstanceGroup> stored_group(const admin_session& session, const std::string& name) {
  wire::admin::GetInstanceGroupRequest request;
  request.set_name(name);
  auto answer = session.ask<wire::admin::GetInstanceGroupResponse>(rpc::get_instance_group, request);
  if (!answer) return std::unexpected(answer.error());
  return std::move(*answer->mutable_instance_group());
}

result<> show_group(admin_session& session, const std::string& name) {
  const auto group = stored_group(session, name);
  if (!group) return std::unexpected(group.error());
  print_message(session, *group);
  return {};
}

result<> put_group(admin_session& session, const std::string& path) {
  wire::admin::CreateInstanceGroupRequest request;
  if (auto filled = read_message(path, *request.mutable_instance_group()); !filled) return filled;
  return session.change(rpc::create_instance_group, request,
                        fmt::format("group {} is there", request.instance_group().name()));
}

/// The update takes the version that the file was made from, so that no other change is lost.
wire::admin::UpdateInstanceGroupRequest update_request(wire::admin::InstanceGroup group) {
  wire::admin::UpdateInstanceGroupRequest request;
  request.set_current_version(group.version());
  if (group.version() < INT64_MAX) group.set_version(group.version() + 1);
  *request.mutable_instance_group() = std::move(group);
  return request;
}

result<> update_group(admin_session& session, const std::string& path) {
  wire::admin::InstanceGroup group;
  if (auto filled = read_message(path, group); !filled) return filled;
  const std::string name = group.name();
  const auto request = update_request(std::move(group));
  return session.change(rpc::update_instance_group, request,
                        fmt::format("group {} is updated to version {}", name, request.instance_group().version()));
}

/// The message of the change. Again from the stored group when another change comes between.
result<std::string> set_reclaim(const admin_session& session, const std::string& name, bool is_paused) {
  for (int attempt = 1;; ++attempt) {
    auto group = stored_group(session, name);
    if (!group) return std::unexpected(group.error());
    if (group->reclaim_paused() == is_paused) return std::string();
    group->set_reclaim_paused(is_paused);
    const auto answer =
        session.call<wire::admin::CommonResponse>(rpc::update_instance_group, update_request(std::move(*group)));
    if (answer) return answer->header().status().message();
    const bool is_conflict = answer.error().fault == manager::call_fault::refused &&
                             answer.error().code == manager::answer_code::version_conflict;
    if (!is_conflict || attempt == most_pause_attempts) return std::unexpected(manager::to_error(answer.error()));
  }
}

result<> pause_group(admin_session& session, const std::string& name) {
  const auto note = set_reclaim(session, name, true);
  if (!note) return std::unexpected(note.error());
  session.print_change(fmt::format("reclaim in group {} is paused", name), *note);
  return {};
}

result<> resume_group(admin_session& session, const std::string& name) {
  const auto note = set_reclaim(session, name, false);
  if (!note) return std::unexpected(note.error());
  session.print_change(fmt::format("reclaim in group {} goes on", name), *note);
  return {};
}

result<> remove_group(admin_session& session, const std::string& name) {
  wire::admin::RemoveInstanceGroupRequest request;
  request.set_name(name);
  return session.change(rpc::remove_instance_group, request, fmt::format("group {} is removed", name));
}

result<> list_instances(admin_session& session, const std::string& group) {
  wire::admin::ListInstanceInfoRequest request;
  request.set_instance_group_name(group);
  const auto answer = session.ask<wire::admin::ListInstanceInfoResponse>(rpc::list_instance_info, request);
  if (!answer) return std::unexpected(answer.error());
  print_list(session, answer->instance_info(), instances_page);
  return {};
}

result<> show_instance(admin_session& session, const std::string& id) {
  wire::GetInstanceInfoRequest request;
  request.set_instance_id(id);
  const auto answer = session.ask<wire::admin::GetInstanceInfoResponse>(rpc::admin_get_instance_info, request);
  if (!answer) return std::unexpected(answer.error());
  print_message(session, answer->instance_info());
  return {};
}

result<> put_instance(admin_session& session, const std::string& path) {
  wire::RegisterInstanceRequest request;
  if (auto filled = read_message(path, request); !filled) return filled;
  return session.change(rpc::admin_register_instance, request,
                        fmt::format("instance {} is there", request.instance_id()));
}

result<> remove_instance(admin_session& session, const std::string& id, const std::string& group) {
  wire::admin::RemoveInstanceRequest request;
  request.set_instance_group(group);
  request.set_instance_id(id);
  return session.change(rpc::remove_instance, request, fmt::format("instance {} is removed", id));
}

result<wire::admin::ListAccountResponse> stored_accounts(admin_session& session) {
  return session.ask<wire::admin::ListAccountResponse>(rpc::list_account, wire::admin::ListAccountRequest());
}

result<> list_accounts(admin_session& session) {
  const auto answer = stored_accounts(session);
  if (!answer) return std::unexpected(answer.error());
  print_list(session, answer->accounts(), accounts_page);
  return {};
}

result<> show_account(admin_session& session, const std::string& name) {
  const auto answer = stored_accounts(session);
  if (!answer) return std::unexpected(answer.error());
  const auto& accounts = answer->accounts();
  const auto account = std::ranges::find_if(accounts, [&](const auto& each) { return each.user_name() == name; });
  if (account == accounts.end()) return fail(error_code::system, "there is no account " + name);
  print_message(session, *account);
  return {};
}

struct account_terms {
  std::string name, role = "user", new_password;
  std::vector<std::string> groups;
};

/// From standard input, or from a file that its owner alone may read.
result<std::string> new_password(const std::string& path) {
  if (path != "-") return manager::read_password(path);
  auto text = read_input(path);
  if (!text) return text;
  text->resize(std::min(text->find_first_of("\r\n"), text->size()));
  if (text->empty()) return fail(error_code::invalid_argument, "the first line of standard input has to be a password");
  return text;
}

result<> put_account(admin_session& session, const account_terms& terms) {
  const auto password = new_password(terms.new_password);
  if (!password) return std::unexpected(password.error());
  wire::admin::AddAccountRequest request;
  request.set_user_name(terms.name);
  request.set_password(*password);
  request.set_role(terms.role == "admin" ? wire::admin::ROLE_ADMIN : wire::admin::ROLE_USER);
  for (const std::string& group : terms.groups) request.add_groups(group);
  return session.change(rpc::add_account, request, fmt::format("account {} is there", terms.name));
}

result<> remove_account(admin_session& session, const std::string& name) {
  wire::admin::DeleteAccountRequest request;
  request.set_user_name(name);
  return session.change(rpc::delete_account, request, fmt::format("account {} is removed", name));
}

/// An action with one text that must be given.
template <class Act>
CLI::App& add_named(CLI::App& family, const std::string& verb, const std::string& description,
                    const std::string& argument, const std::string& argument_description, Act act) {
  const auto text = std::make_shared<std::string>();
  CLI::App& command = add_action(family, verb, description, [text, act](admin_session& s) { return act(s, *text); });
  command.add_option(argument, *text, argument_description)->required();
  return command;
}

constexpr const char* file_text = "File with it in JSON, - for standard input";

}  // namespace

void add_storages(CLI::App& admin) {
  CLI::App& family = add_family(admin, "storage", "Where bytes are");
  add_action(family, "list", "All storages", list_storages);
  add_named(family, "show", "All fields of one", "name", "", show_storage);
  add_named(family, "add", "Adds one; the same again is no error", "file", file_text, put_storage);
  const auto is_forced = std::make_shared<bool>(false);
  add_named(family, "update", "Replaces the fields of one", "file", file_text,
            [is_forced](admin_session& s, const std::string& path) { return update_storage(s, path, *is_forced); })
      .add_flag("--force", *is_forced, "Also another type or place; what lies there is forgotten");
  add_named(family, "remove", "Removes one", "name", "", [is_forced](admin_session& s, const std::string& name) {
    return remove_storage(s, name, *is_forced);
  }).add_flag("--force", *is_forced, "Also from groups, with its locations; no bytes are deleted");
  add_named(family, "enable", "Ends a disable", "name", "", [](admin_session& s, const std::string& name) {
    return change_storage<wire::admin::EnableStorageRequest>(s, rpc::enable_storage, name, "enabled");
  });
  add_named(family, "disable", "No new blocks, and its blocks are not served", "name", "",
            [](admin_session& s, const std::string& name) {
              return change_storage<wire::admin::DisableStorageRequest>(s, rpc::disable_storage, name, "disabled");
            });
}

void add_groups(CLI::App& admin) {
  CLI::App& family = add_family(admin, "group", "Storages in an order, quotas, and a policy of what goes first");
  add_action(family, "list", "All groups", list_groups);
  add_named(family, "show", "All fields of one", "name", "", show_group);
  add_named(family, "add", "Adds one; the same again is no error", "file", file_text, put_group);
  add_named(family, "update", "Replaces the version in the file, as `show --json` gave it, by the next one", "file",
            file_text, update_group);
  add_named(family, "remove", "Removes one without instances", "name", "", remove_group);
  add_named(family, "pause", "Nothing is evicted any more", "name", "", pause_group);
  add_named(family, "resume", "Ends a pause", "name", "", resume_group);
}

void add_instances(CLI::App& admin) {
  CLI::App& family = add_family(admin, "instance", "Agreements of engines; they never change");
  const auto group = std::make_shared<std::string>();
  add_action(family, "list", "All instances", [group](admin_session& s) {
    return list_instances(s, *group);
  }).add_option("--group", *group, "Of this group alone");
  add_named(family, "show", "All fields of one", "id", "", show_instance);
  add_named(family, "add", "Registers one; the same again is no error", "file", file_text, put_instance);
  add_named(family, "remove", "Removes one with its blocks", "id", "",
            [group](admin_session& s, const std::string& id) { return remove_instance(s, id, *group); })
      .add_option("--group", *group, "Only if it is in this group");
}

void add_accounts(CLI::App& admin) {
  CLI::App& family = add_family(admin, "account", "Names and rights of callers");
  add_action(family, "list", "All accounts", list_accounts);
  add_named(family, "show", "All fields of one", "name", "", show_account);
  const auto terms = std::make_shared<account_terms>();
  CLI::App& add = add_action(family, "add", "Adds one; the same again is no error",
                             [terms](admin_session& s) { return put_account(s, *terms); });
  add.add_option("name", terms->name)->required();
  add.add_option("--new-password-file", terms->new_password,
                 "File with its password, which its owner alone may read; - for standard input")
      ->required();
  add.add_option("--role", terms->role, "`user` may use MetaService, `admin` all")
      ->check(CLI::IsMember({"user", "admin"}))
      ->capture_default_str();
  add.add_option("--group", terms->groups, "It sees this group alone; may be repeated");
  add_named(family, "remove", "Removes one", "name", "", remove_account);
}

}  // namespace cenote::admin
