// How a log line looks: text for people, JSON lines for collectors, priorities for the journal.
//
// A message with fields travels through spdlog as one payload, and every format writes it in its own way:
//
//   message RS key US value RS key US "value          RS = 0x1e, US = 0x1f; a string's value starts with a
//   quote
#pragma once

#include <spdlog/formatter.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>

#include "config/node_config.hpp"

namespace cenote {

/// A field of a log line; views what it was made from, so it lives no longer than the call that it is an
/// argument of.
struct log_field {
  using content = std::variant<std::int64_t, std::uint64_t, double, bool, std::string_view>;

  template <class T>
  log_field(std::string_view name, const T& object) : key(name), value(to_content(object)) {}

  std::string_view key;
  content value;

 private:
  template <class T>
  static content to_content(const T& object) {
    if constexpr (std::is_same_v<T, bool>) {
      return object;
    } else if constexpr (std::is_floating_point_v<T>) {
      return static_cast<double>(object);
    } else if constexpr (std::is_integral_v<T> && std::is_signed_v<T>) {
      return static_cast<std::int64_t>(object);
    } else if constexpr (std::is_integral_v<T>) {
      return static_cast<std::uint64_t>(object);
    } else {
      return std::string_view(object);
    }
  }
};

/// The payload described above.
[[nodiscard]] std::string encode_payload(std::string_view message, std::initializer_list<log_field> fields);

/// One line per event, whatever bytes it holds. `automatic` is text. Used by one thread at a time, as
/// spdlog's sinks do.
///   text     2026-01-31T12:00:00.123Z info  keeper: worker is ready pid=42 path="a b"
///   json     {"time":"…","level":"info","component":"keeper","message":"worker is ready","pid":42,"path":"a
///   b"} journal  <6>keeper: worker is ready pid=42 path="a b"
[[nodiscard]] std::unique_ptr<spdlog::formatter> make_formatter(config::log_format format);

}  // namespace cenote
