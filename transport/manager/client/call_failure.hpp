// Calls of a manager that did not end well, with what is certain about them.
#pragma once

#include <cstdint>
#include <expected>
#include <string>

#include "core/error.hpp"
#include "transport/manager/answer_code.hpp"

namespace cenote::manager {

enum class call_fault : std::uint8_t {
  refused,          ///< a manager has answered that it did not do it
  unreachable,      ///< it was sent to no manager: nothing is done
  unanswered,       ///< a read without an answer
  unknown_outcome,  ///< a write without an answer: it may be done, or may still be done
};

/// A call that failed.
struct call_failure {
  call_fault fault = call_fault::refused;
  answer_code code = answer_code::unspecified;  ///< of the answer; unspecified without one
  std::string message = {};                     ///< with the address
};

template <class T = void>
using call_outcome = std::expected<T, call_failure>;

/// The failure for programs that know no codes of managers. The message has whether the outcome is known.
[[nodiscard]] error to_error(const call_failure& failure);

}  // namespace cenote::manager
