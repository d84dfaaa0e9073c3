// A configuration value that its schema has accepted.
#pragma once

#include <string>

#include "config/raw_value.hpp"
#include "config/schema.hpp"
#include "core/error.hpp"

namespace cenote::config {

/// The entry's value in the schema's type and range. Fails with invalid_config and a message that names
/// source, key, value (not of secrets) and what would be right. Thread-safe.
[[nodiscard]] result<typed_value> check(const key_schema& schema, const raw_entry& entry);

/// The default. Ends the program if the schema's own text is wrong, which a unit test excludes.
[[nodiscard]] typed_value default_of(const key_schema& schema);

/// The value as TOML: "1GiB" with its quotes, true, [1, 2]. Equal values give equal text.
[[nodiscard]] std::string to_toml(const typed_value& value);

}  // namespace cenote::config
