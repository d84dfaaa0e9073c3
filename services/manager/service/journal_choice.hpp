// The journal that is configured.
#pragma once

#include <string>

#include "config/manager_section.hpp"
#include "core/error.hpp"
#include "services/manager/service/manager_writer.hpp"

namespace cenote::manager {

/// Opens the journal of `manager.store`; nothing is opened yet, and no server asked. Errors: invalid_config: the
/// address or the file with a password cannot be used, which never repeats a password.
[[nodiscard]] result<journal_opener> journal_opener_of(const config::manager_section& settings,
                                                       const std::string& state_dir);

}  // namespace cenote::manager
