// The rules of the manager's keys together.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "config/manager_section.hpp"
#include "config/node_config.hpp"
#include "core/error.hpp"

namespace cenote::config {

/// Whether a manager can start with these keys; a node does not ask. Errors: invalid_config, which names the key that
/// is set, its place, and what would be right.
[[nodiscard]] result<> check_manager(const node_config& config);

/// Name and program of an entry of manager.plugins.
[[nodiscard]] std::pair<std::string_view, std::string_view> split_plugin(std::string_view plugin) noexcept;

/// Whether calls need an account.
[[nodiscard]] bool needs_accounts(const manager_section& manager);

/// Where the manager keeps its state: the configured folder, else this user's.
[[nodiscard]] std::string manager_state_dir(const node_config& config);

}  // namespace cenote::config
