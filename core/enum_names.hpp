// The names of enumerators, from one macro.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cenote {

/// The word for an enumerator: its own name, but `auto` is no name in C++, so that the enumerator is `automatic`.
[[nodiscard]] constexpr std::string_view word_of(std::string_view enumerator) noexcept {
  return enumerator == "automatic" ? "auto" : enumerator;
}

}  // namespace cenote

// A call of `what(type, each)` for each of up to 64 names.
#define CENOTE_PARENS ()
#define CENOTE_RESCAN(...) CENOTE_RESCAN3(CENOTE_RESCAN3(CENOTE_RESCAN3(CENOTE_RESCAN3(__VA_ARGS__))))
#define CENOTE_RESCAN3(...) CENOTE_RESCAN2(CENOTE_RESCAN2(CENOTE_RESCAN2(CENOTE_RESCAN2(__VA_ARGS__))))
#define CENOTE_RESCAN2(...) CENOTE_RESCAN1(CENOTE_RESCAN1(CENOTE_RESCAN1(CENOTE_RESCAN1(__VA_ARGS__))))
#define CENOTE_RESCAN1(...) __VA_ARGS__
#define CENOTE_FOR_EACH(what, type, ...) __VA_OPT__(CENOTE_RESCAN(CENOTE_FOR_ONE(what, type, __VA_ARGS__)))
#define CENOTE_FOR_ONE(what, type, one, ...) \
  what(type, one) __VA_OPT__(CENOTE_FOR_NEXT CENOTE_PARENS(what, type, __VA_ARGS__))
#define CENOTE_FOR_NEXT() CENOTE_FOR_ONE

#define CENOTE_ENUM_CASE(type, enumerator) \
  case type::enumerator: return ::cenote::word_of(#enumerator);
#define CENOTE_ENUM_VALUE(type, enumerator) type::enumerator,

/// Behind an enum, in its namespace: name_of(value), and enumerators_of(any value), all of them in this order. One that
/// is left out does not compile (-Wswitch).
#define CENOTE_ENUM_NAMES(type, ...)                                               \
  [[nodiscard]] constexpr std::string_view name_of(type value) noexcept {          \
    switch (value) { CENOTE_FOR_EACH(CENOTE_ENUM_CASE, type, __VA_ARGS__) }        \
    return "?";                                                                    \
  }                                                                                \
  [[nodiscard]] constexpr auto enumerators_of(type /*any*/) noexcept {             \
    return std::to_array({CENOTE_FOR_EACH(CENOTE_ENUM_VALUE, type, __VA_ARGS__)}); \
  }                                                                                \
  static_assert(true)

namespace cenote {

/// The enumerator of that name; nothing if there is none.
template <class Enum>
[[nodiscard]] constexpr std::optional<Enum> enum_named(std::string_view name) noexcept {
  for (const Enum each : enumerators_of(Enum{})) {
    if (name_of(each) == name) return each;
  }
  return std::nullopt;
}

/// All names, for those who check against a list.
template <class Enum>
[[nodiscard]] std::vector<std::string> enumerator_names() {
  std::vector<std::string> all;
  for (const Enum each : enumerators_of(Enum{})) all.emplace_back(name_of(each));
  return all;
}

/// How many there are.
template <class Enum>
inline constexpr std::size_t enum_size = enumerators_of(Enum{}).size();

namespace detail {

template <class Enum>
inline constexpr auto joined_names = [] {
  constexpr std::size_t length = [] {
    std::size_t sum = enum_size<Enum> - 1;
    for (const Enum each : enumerators_of(Enum{})) sum += name_of(each).size();
    return sum;
  }();
  std::array<char, length> text{};
  char* at = text.data();
  for (const Enum each : enumerators_of(Enum{})) {
    if (at != text.data()) *at++ = '|';
    at = std::ranges::copy(name_of(each), at).out;
  }
  return text;
}();

}  // namespace detail

/// All names: "all|hot|evicted".
template <class Enum>
inline constexpr std::string_view enum_names{detail::joined_names<Enum>.data(), detail::joined_names<Enum>.size()};

}  // namespace cenote
