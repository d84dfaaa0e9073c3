// TOML text to flat entries. The only file pair that knows the TOML library.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/raw_value.hpp"
#include "core/error.hpp"

namespace cenote::config {

/// All values of a TOML document, tables flattened to dotted keys, in the order of their lines; `name` is the
/// file's name for messages and sources ("cenote.toml:12"). Fails with invalid_config, file, line and column.
[[nodiscard]] result<std::vector<raw_entry>> read_toml(std::string_view text, const std::string& name);

/// One value as typed on a command line or in an environment variable: TOML if it is that, a bare list
/// ("[/data/a,/data/b]", since a shell eats quotes), else a string. Never fails.
[[nodiscard]] raw_value read_typed(std::string_view text);

}  // namespace cenote::config
