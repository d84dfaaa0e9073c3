#include "services/manager/service/first_account.hpp"

#include <sys/stat.h>

#include <array>
#include <iterator>
#include <utility>

#include "config/logging.hpp"
#include "core/private_file.hpp"
#include "core/random_number.hpp"
#include "core/text.hpp"

namespace cenote::manager {

namespace {

result<std::string> stored_password(const std::string& path) {
  std::array<std::byte, 16> bytes{};
  fill_randomly(bytes);
  if (auto made = make_private_file(path, hex_text(bytes) + "\n"); !made) return std::unexpected(made.error());
  auto file = read_private_file(path, longest_password, S_IRWXG | S_IRWXO);
  if (!file) return std::unexpected(file.error());
  return file->text.substr(0, file->text.find('\n'));
}

rpc_outcome<registry_change> add_first_account(registry_change change, const std::string& path) {
  const auto password = stored_password(path);
  if (!password) return refuse(answer_code::io_error, "the first account: " + password.error().message());
  const auto secret = make_secret(*password);
  if (!secret) return refuse(secret.error().code, path + ": " + secret.error().message);
  proto::admin::AddAccountRequest request;
  request.set_user_name(first_account);
  request.set_password(*password);
  request.set_role(proto::admin::ROLE_ADMIN);
  auto next = change.next.add_account(request, *secret);
  if (!next) return next;
  std::ranges::move(next->rows, std::back_inserter(change.rows));
  next->rows = std::move(change.rows);
  log_info(logger("manager"), "the first account is made", {{"account", first_account}, {"password_file", path}});
  return next;
}

}  // namespace

registry_edit with_first_account(registry_edit begin, std::string state_dir) {
  return [begin = std::move(begin), path = std::move(state_dir) + "/" +
                                           password_file](const change_basis& basis) -> rpc_outcome<registry_change> {
    rpc_outcome<registry_change> change = registry_change{.next = basis.settings};
    if (begin) change = begin(basis);
    const bool has_accounts = change ? !change->next.accounts().empty() : !basis.settings.accounts().empty();
    if (has_accounts) return change;
    if (!change) {
      log_warn(logger("manager"), "the registry's begin is refused", {{"reason", change.error().message}});
      change = registry_change{.next = basis.settings};
    }
    return add_first_account(std::move(*change), path);
  };
}

}  // namespace cenote::manager
