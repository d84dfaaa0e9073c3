// The refusal of a command line.
#pragma once

#include <string>
#include <utility>

#include "core/error.hpp"

namespace cenote::optimize {

/// invalid_argument: `text` names the option, and what would be right.
[[nodiscard]] inline std::unexpected<error> refuse(std::string text) {
  return fail(error_code::invalid_argument, std::move(text));
}

}  // namespace cenote::optimize
