// Counts the fields of a plain struct, so that a test which lists them fails when one is added.
#pragma once

#include <cstddef>
#include <utility>

namespace cenote::testing {

namespace detail {

struct any_field {
  template <class T>
  operator T() const;  // declared only
};

template <std::size_t>
using any_of = any_field;

template <class T, std::size_t... Number>
consteval bool takes(std::index_sequence<Number...>) {
  return requires { T{any_of<Number>{}...}; };
}

}  // namespace detail

template <class T, std::size_t Count = 0>
consteval std::size_t field_count() {
  if constexpr (detail::takes<T>(std::make_index_sequence<Count + 1>())) {
    return field_count<T, Count + 1>();
  } else {
    return Count;
  }
}

}  // namespace cenote::testing
