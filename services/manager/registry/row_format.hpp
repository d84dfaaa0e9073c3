// The form of the registry's rows in a store.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace cenote::manager {

/// A row that is to be written.
struct row_change {
  std::string key = {};
  std::optional<std::string> value = {};  ///< nothing: the row is erased
};

/// A row that was read.
struct stored_row {
  std::string key = {};
  std::string value = {};
};

/// `content` in the envelope of all rows, see row_seal.hpp.
[[nodiscard]] std::string pack_row(std::string_view key, std::string_view content);

/// The content of a row, which points into `value`; nothing: it is damaged, or another key's. Thread-safe.
[[nodiscard]] std::optional<std::string_view> unpack_row(std::string_view key, std::string_view value) noexcept;

}  // namespace cenote::manager
