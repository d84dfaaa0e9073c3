// What an operator asks of a node: one flat JSON object of known fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"

namespace cenote {

/// Fields that were not given are empty. Which a command needs is the command's business.
struct admin_request {
  std::string command;
  std::optional<std::string> instance;
  std::optional<std::string> level;
  std::optional<std::uint64_t> id;
  std::optional<std::string> from;
  std::optional<std::string> to;
  std::optional<std::string> node;
  bool all = false;
  bool both = false;
};

/// Errors: malformed (no JSON object with a `command`), invalid_argument (names the field that is unknown, there twice,
/// or of another type). Nesting is refused as it is met, so that no text, however deep, costs more than its length.
[[nodiscard]] result<admin_request> parse_admin_request(std::string_view text);

}  // namespace cenote
