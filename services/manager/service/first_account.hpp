// The account that an empty registry begins with.
#pragma once

#include <string>

#include "services/manager/service/registry_command.hpp"

namespace cenote::manager {

inline constexpr const char* first_account = "admin";
inline constexpr const char* password_file = "admin.password";

/// `begin`, and behind it an account `admin` if there is no account then. Its random password stands in
/// `admin.password` of the state directory, which its owner alone may read; a file that is there is used as it is, so
/// that it stays true if the change is made again. Refused: io_error (the file).
[[nodiscard]] registry_edit with_first_account(registry_edit begin, std::string state_dir);

}  // namespace cenote::manager
