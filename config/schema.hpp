// The one table of all configuration keys: names, types, defaults, ranges, and what each is for.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/error.hpp"

namespace cenote::config {

struct node_config;

enum class value_type {
  string,
  integer,
  boolean,
  bytes,         ///< a size: "4GiB"
  duration,      ///< "250ms"
  ratio,         ///< a number from 0 to 1
  choice,        ///< one of a few words
  string_list,   ///< ["a", "b"]
  integer_list,  ///< [1, 2]
  ratio_map,     ///< {gpu = 1.0, cpu = 0.8}
};

/// Bytes in a type of their own: an integer of a key is signed, a size is not.
struct byte_size {
  std::uint64_t bytes = 0;
  friend bool operator==(byte_size, byte_size) = default;
};

/// A value that its schema has accepted, one alternative per value_type; a choice is its word.
using typed_value = std::variant<std::string, std::int64_t, bool, byte_size, std::chrono::nanoseconds, double,
                                 std::vector<std::string>, std::vector<std::int64_t>, std::map<std::string, double>>;

/// One key. Texts of defaults and bounds are written as in a configuration file, without the quotes of
/// strings.
struct key_schema {
  std::string_view name = {};  ///< "dram.capacity"; "<name>" stands for a name of the user's choice
  value_type type = value_type::string;
  std::string_view unit = {};      ///< what a number counts ("threads"), empty where the type says it
  std::string_view fallback = {};  ///< the default
  std::string_view minimum = {};   ///< inclusive; empty: none. Of lists: of each element
  std::string_view maximum = {};
  std::string_view choices = {};  ///< "auto|off"; of members that are enums all their names, unless it says which
  std::string_view (*words)() = nullptr;  ///< the choices, where another folder names them
  bool reloadable = false;                ///< takes effect on SIGHUP without a restart
  bool secret = false;                    ///< never shown
  std::string_view about = {};            ///< one line
  /// Puts a checked value into the key's member; `name` stands for "<name>". Set by bound(), config/binding.hpp.
  result<> (*take)(node_config& into, std::string_view name, const typed_value& value) = nullptr;
  bool is_bound = false;  ///< there is `take`; with a sanitizer, comparing it with nullptr is no constant to g++ 12
};

/// Every key, sections together. Thread-safe, as all of this header.
[[nodiscard]] std::span<const key_schema> all_keys();

/// The schema of `key`, nullptr if there is none. "groups.<name>.quota" describes "groups.a.quota".
[[nodiscard]] const key_schema* find_key(std::string_view key);

/// What stands for "<name>" in `key` ("a" in "groups.a.quota"), which `schema` must describe; empty without
/// one.
[[nodiscard]] std::string_view chosen_name(const key_schema& schema, std::string_view key);

/// True if the schema's name has a part of the user's choice; such a key has no value until someone sets it.
[[nodiscard]] bool is_pattern(const key_schema& schema);

/// True if `name` is a table of keys ("dram", "groups.a").
[[nodiscard]] bool is_section(std::string_view name);

/// The key or section that someone who wrote the unknown `key` most likely meant.
[[nodiscard]] std::optional<std::string> nearest_key(std::string_view key);

/// The words of a choice.
[[nodiscard]] std::vector<std::string> choices_of(const key_schema& schema);

/// The type's name in the documentation: "size", "list of integers".
[[nodiscard]] std::string_view type_name(value_type type);

/// What the key accepts, for messages: "a size such as \"4GiB\", from 1MiB".
[[nodiscard]] std::string accepted(const key_schema& schema);

/// The range in words: "1 to 4096", "from 1MiB"; empty without bounds.
[[nodiscard]] std::string range_of(const key_schema& schema);

}  // namespace cenote::config
