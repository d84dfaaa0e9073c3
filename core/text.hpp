// Text that others chose (names of clients, instances, groups), on its way into JSON, logs and terminals.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace cenote {

/// Bytes of the UTF-8 sequence at the start of `text`; 0 when there is none.
[[nodiscard]] std::size_t utf8_length(std::string_view text) noexcept;

/// `text` with U+FFFD in the place of each byte that is not UTF-8: what JSON and metrics take. Thread-safe.
[[nodiscard]] std::string as_utf8(std::string_view text);

/// `text` for a terminal: what would steer it (control characters, C1 and bidirectional ones included) and bytes that
/// are not UTF-8 come as \n, \t, \x1b, \u009b. Thread-safe.
[[nodiscard]] std::string printable(std::string_view text);

/// Two hexadecimal digits a byte. Thread-safe.
[[nodiscard]] std::string hex_text(std::span<const std::byte> bytes);

/// `text` without spaces and tabs at its ends.
[[nodiscard]] std::string_view trimmed(std::string_view text) noexcept;

/// The first `most` bytes of `text`, less what would cut a UTF-8 sequence in two.
[[nodiscard]] std::string_view cut_text(std::string_view text, std::size_t most) noexcept;

/// Whether it is 1 to 64 letters, digits and `.`, `_`, `-`: what nodes and clusters are called.
inline constexpr std::size_t longest_plain_name = 64;
[[nodiscard]] bool is_plain_name(std::string_view text) noexcept;

/// Refuses a name that no status, log or terminal could show: over `most` bytes, not UTF-8, control characters.
/// Errors: invalid_argument, which begins with `what`.
[[nodiscard]] result<void> check_name(std::string_view what, std::string_view name, std::size_t most);

}  // namespace cenote
