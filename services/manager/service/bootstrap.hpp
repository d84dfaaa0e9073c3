// The begin of an empty registry.
#pragma once

#include <string>

#include "core/error.hpp"
#include "services/manager/service/registry_command.hpp"

namespace cenote::manager {

/// The change for `manager.bootstrap`: "default" makes a file storage `local_01` in the state directory, with half of
/// what is free there, and a group `default`; "none" changes nothing; else it is the path of a snapshot. It changes
/// nothing where the registry is not empty. Errors: invalid_config (a snapshot that cannot be read), system.
[[nodiscard]] result<registry_edit> bootstrap_edit(const std::string& choice, const std::string& state_dir);

}  // namespace cenote::manager
