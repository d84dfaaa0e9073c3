// Rows of the schema bound to members of the configuration: what a key's value becomes, and that their types agree.
#pragma once

#include <algorithm>
#include <array>
#include <concepts>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "config/node_config.hpp"
#include "config/schema.hpp"
#include "core/enum_names.hpp"

namespace cenote::config {

namespace detail {

template <class T>
concept number = std::integral<T> && !std::same_as<T, bool>;

template <class T>
struct is_optional_number : std::false_type {};
template <number T>
struct is_optional_number<std::optional<T>> : std::true_type {};

/// The value types that a member may have.
template <class T>
[[nodiscard]] consteval bool takes(value_type type) {
  using enum value_type;
  if constexpr (std::is_enum_v<T>) return type == choice;
  if constexpr (std::same_as<T, bool>) return type == boolean;
  if constexpr (std::same_as<T, std::uint64_t>) return type == bytes || type == integer;
  if constexpr (number<T> || is_optional_number<T>::value) return type == integer;
  if constexpr (std::same_as<T, double>) return type == ratio;
  if constexpr (std::same_as<T, std::chrono::nanoseconds>) return type == duration;
  if constexpr (std::same_as<T, std::string>) return type == string || type == choice;
  if constexpr (std::same_as<T, std::optional<endpoint>>) return type == string;
  if constexpr (std::same_as<T, std::vector<std::string>> || std::same_as<T, std::vector<full_key>>) {
    return type == string_list;
  }
  if constexpr (std::same_as<T, std::vector<uid_t>>) return type == integer_list;
  if constexpr (std::same_as<T, std::map<std::string, double>>) return type == ratio_map;
  return false;
}

/// A checked value into its member. Fails where a text must also be well-formed; says why.
template <class T>
result<> assign(T& member, const typed_value& value) {
  member = std::get<T>(value);
  return {};
}
template <number T>
result<> assign(T& member, const typed_value& value) {
  const auto* size = std::get_if<byte_size>(&value);
  member = static_cast<T>(size != nullptr ? size->bytes : static_cast<std::uint64_t>(std::get<std::int64_t>(value)));
  return {};
}
/// A number for which -1 stands for nothing.
template <number T>
result<> assign(std::optional<T>& member, const typed_value& value) {
  const auto given = std::get<std::int64_t>(value);
  member = given < 0 ? std::nullopt : std::optional(static_cast<T>(given));
  return {};
}
template <class T>
  requires std::is_enum_v<T>
result<> assign(T& member, const typed_value& value) {
  member = enum_named<T>(std::get<std::string>(value)).value();  // bound() has seen that each word has its enumerator
  return {};
}
result<> assign(std::vector<uid_t>& member, const typed_value& value);
result<> assign(std::vector<full_key>& member, const typed_value& value);
result<> assign(std::optional<endpoint>& member, const typed_value& value);

/// The row with what fits its member: the words of an enum, where it does not name a part of them.
template <class T>
[[nodiscard]] consteval key_schema fitted(key_schema row) {
  if (!takes<T>(row.type)) throw "the key's type does not fit its member";
  if constexpr (std::is_enum_v<T>) {
    if (row.choices.empty()) row.choices = enum_names<T>;
    std::string_view rest = row.choices;
    while (!rest.empty()) {
      // Not rest.find(): with a sanitizer, its look for a null pointer is no constant to g++ 12.
      const auto end = static_cast<std::size_t>(std::ranges::find(rest, '|') - rest.begin());
      if (!enum_named<T>(rest.substr(0, end))) throw "a choice has no enumerator";
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return row;
}

template <auto Member>
struct member_type;
template <class Section, class T, T Section::*Member>
struct member_type<Member> {
  using type = T;
};

}  // namespace detail

/// The row of a key of a section: `bound<&node_config::dram, &dram_section::capacity>({.name = "dram.capacity", …})`.
template <auto Section, auto Member>
[[nodiscard]] consteval key_schema bound(key_schema row) {
  row = detail::fitted<typename detail::member_type<Member>::type>(row);
  row.is_bound = true;
  row.take = [](node_config& into, std::string_view /*name*/, const typed_value& value) {
    return detail::assign(into.*Section.*Member, value);
  };
  return row;
}

/// The row of a key that each table of a map of them has.
template <auto Map, auto Member>
[[nodiscard]] consteval key_schema bound_by_name(key_schema row) {
  row = detail::fitted<typename detail::member_type<Member>::type>(row);
  row.is_bound = true;
  row.take = [](node_config& into, std::string_view name, const typed_value& value) {
    return detail::assign((into.*Map)[std::string(name)].*Member, value);
  };
  return row;
}

/// The row of a key that each group has.
template <auto Member>
[[nodiscard]] consteval key_schema bound_in_group(key_schema row) {
  return bound_by_name<&node_config::groups, Member>(row);
}

}  // namespace cenote::config
