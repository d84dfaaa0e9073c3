// A configuration value as it was written, before the schema has looked at it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace cenote::config {

/// A value of TOML. Readers flatten tables into dotted keys, but for those that are the value of a key.
struct raw_value {
  using list = std::vector<raw_value>;
  struct inline_table;
  struct empty_table {};  ///< `[section]` without a key
  struct other {
    std::string kind;
  };  ///< what no key accepts: a date, a time, a table in a list

  std::variant<bool, std::int64_t, double, std::string, list, std::shared_ptr<const inline_table>, empty_table, other>
      data;
};

/// By name, in the order of names.
struct raw_value::inline_table {
  std::vector<std::pair<std::string, raw_value>> entries;
};

/// One key with its value and the place that a message names.
struct raw_entry {
  std::string key;  ///< dotted: "dram.capacity"
  raw_value value;
  std::string source;  ///< "cenote.toml:12", "environment variable CENOTE_DRAM__CAPACITY", "--set"
  /// What a person typed, for sources without types: a key of type string takes `12345` as it stands.
  std::optional<std::string> typed = std::nullopt;
};

/// The value as TOML would write it, for messages.
[[nodiscard]] std::string describe(const raw_value& value);

/// `text` as a TOML basic string with its quotes.
[[nodiscard]] std::string toml_quoted(std::string_view text);

}  // namespace cenote::config
