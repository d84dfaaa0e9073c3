// Accounts of the registry.
#include <algorithm>
#include <expected>
#include <string>
#include <utility>

#include "services/manager/registry/field_faults.hpp"
#include "services/manager/registry/registry.hpp"
#include "services/manager/registry/registry_editor.hpp"

namespace cenote::manager {

namespace {

std::vector<std::string> sorted_names(const google::protobuf::RepeatedPtrField<std::string>& names) {
  std::vector<std::string> sorted(names.begin(), names.end());
  std::ranges::sort(sorted);
  const auto rest = std::ranges::unique(sorted);
  sorted.erase(rest.begin(), rest.end());
  return sorted;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text.append(text.empty() ? "" : ",").append(name);
  return text.empty() ? "all" : text;
}

rpc_outcome<registered_account> make_account(const proto::admin::AddAccountRequest& request,
                                             const account_secret& secret) {
  field_faults faults;
  faults.check_name("user_name", request.user_name());
  if (request.user_name().contains(':')) faults.add("user_name", "must not have a colon");
  if (request.password().empty()) faults.add("password", "is needed");
  if (!proto::admin::AccountRole_IsValid(request.role())) {
    faults.add("role", "the number " + std::to_string(request.role()) + " is unknown");
  }
  for (std::size_t i = 0; const std::string& group : request.groups()) faults.check_name(indexed("groups", i++), group);
  if (auto sound = faults.outcome(); !sound) return std::unexpected(sound.error());
  return registered_account{.name = request.user_name(),
                            .role = static_cast<account_role>(request.role()),
                            .groups = sorted_names(request.groups()),
                            .secret = secret};
}

std::string_view role_name(account_role role) noexcept {
  return role == account_role::admin ? "ROLE_ADMIN" : "ROLE_USER";
}

std::string account_difference(const registered_account& stored, const registered_account& fresh) {
  if (stored.role != fresh.role) {
    return std::string("role: ").append(role_name(stored.role)).append(", not ").append(role_name(fresh.role));
  }
  if (stored.groups != fresh.groups) return "groups: " + joined(stored.groups) + ", not " + joined(fresh.groups);
  return stored.secret == fresh.secret ? "" : "password";
}

bool is_last_admin(const entry_map<registered_account>& accounts, const registered_account& account) noexcept {
  return account.role == account_role::admin && std::ranges::count_if(accounts, [](const auto& item) {
                                                  return item.second->role == account_role::admin;
                                                }) == 1;
}

std::unexpected<rpc_refusal> refuse_last_admin(std::string_view name) {
  return refuse(answer_code::in_use,
                "account `" + std::string(name) + "` is the last one with ROLE_ADMIN: add another one first");
}

}  // namespace

bool registered_account::may_see(std::string_view group) const noexcept {
  return groups.empty() || std::ranges::binary_search(groups, group);
}

proto::admin::Account registered_account::message() const {
  proto::admin::Account account;
  account.set_user_name(name);
  account.set_role(static_cast<proto::admin::AccountRole>(role));
  for (const std::string& group : groups) account.add_groups(group);
  return account;
}

rpc_outcome<registry_change> manager_registry::add_account(const proto::admin::AddAccountRequest& request,
                                                           const account_secret& secret) const {
  auto entry = make_account(request, secret);
  if (!entry) return std::unexpected(entry.error());
  registry_editor editor(*this);
  if (const auto stored = find_account(entry->name)) {
    const std::string difference = account_difference(*stored, *entry);
    if (difference.empty()) return std::move(editor).take();
    return refuse(answer_code::duplicate_entity, "account `" + entry->name + "` exists with another " + difference);
  }
  editor.put(std::move(*entry));
  return std::move(editor).take();
}

rpc_outcome<account_secret> manager_registry::secret_for(std::string_view name, std::string_view password) const {
  const auto stored = find_account(name);
  if (stored && !password.empty() && matches(stored->secret, password)) return stored->secret;
  return make_secret(password);
}

rpc_outcome<registry_change> manager_registry::update_account(const proto::admin::Account& account) const {
  const auto stored = find_account(account.user_name());
  if (!stored) return refuse(answer_code::not_found, "account `" + account.user_name() + "` does not exist");
  proto::admin::AddAccountRequest request;
  request.set_user_name(account.user_name());
  request.set_password("kept");
  request.set_role(account.role());
  *request.mutable_groups() = account.groups();
  auto entry = make_account(request, stored->secret);
  if (!entry) return std::unexpected(entry.error());
  registry_editor editor(*this);
  if (entry->role == stored->role && entry->groups == stored->groups) return std::move(editor).take();
  if (entry->role != account_role::admin && is_last_admin(*accounts_, *stored)) return refuse_last_admin(stored->name);
  editor.put(std::move(*entry));
  return std::move(editor).take();
}

rpc_outcome<registry_change> manager_registry::delete_account(std::string_view name) const {
  const auto stored = find_account(name);
  if (!stored) return refuse(answer_code::not_found, "account `" + std::string(name) + "` does not exist");
  if (is_last_admin(*accounts_, *stored)) return refuse_last_admin(name);
  registry_editor editor(*this);
  editor.erase_account(name);
  return std::move(editor).take();
}

std::shared_ptr<const registered_account> manager_registry::check(std::string_view name,
                                                                  std::string_view password) const {
  auto stored = find_account(name);
  static const account_secret stranger{};  // of no password
  const bool is_right = matches(stored ? stored->secret : stranger, password);
  return is_right ? stored : nullptr;
}

}  // namespace cenote::manager
