// The registry as a text for people and other managers.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "services/manager/registry/registry.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

/// Storages, groups, instances and accounts without secrets as JSON: ConfigSnapshot of registry.proto.
[[nodiscard]] std::string make_snapshot(const manager_registry& source);

/// Adds and updates what a snapshot has, all of it or nothing; what it does not have stays. The note has each thing
/// that changes, which is all that a dry run needs. Groups that differ get a version above the stored one. Accounts
/// that do not exist are left out, since a snapshot has no passwords, and the note names them. `use`: of a storage by
/// name. Refused: invalid_argument where the text is no snapshot; else as the single changes are, with the thing in
/// front.
[[nodiscard]] rpc_outcome<registry_change> load_snapshot(const manager_registry& base, std::string_view text,
                                                         const std::function<storage_use(std::string_view)>& use);

}  // namespace cenote::manager
