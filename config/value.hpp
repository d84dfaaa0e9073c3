// A configuration value that its schema has accepted.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "config/raw_value.hpp"
#include "config/schema.hpp"
#include "core/error.hpp"

namespace cenote::config {

/// Bytes in a type of their own: an integer of a key is signed, a size is not.
struct byte_size {
  std::uint64_t bytes = 0;
  friend bool operator==(byte_size, byte_size) = default;
};

/// One alternative per value_type; a choice is its word.
using typed_value = std::variant<std::string, std::int64_t, bool, byte_size, std::chrono::nanoseconds, double,
                                 std::vector<std::string>, std::vector<std::int64_t>>;

/// The entry's value in the schema's type and range. Fails with invalid_config and a message that names
/// source, key, value (not of secrets) and what would be right. Thread-safe.
[[nodiscard]] result<typed_value> check(const key_schema& schema, const raw_entry& entry);

/// The default. Ends the program if the schema's own text is wrong, which a unit test excludes.
[[nodiscard]] typed_value default_of(const key_schema& schema);

/// The value as TOML: "1GiB" with its quotes, true, [1, 2]. Equal values give equal text.
[[nodiscard]] std::string to_toml(const typed_value& value);

}  // namespace cenote::config
