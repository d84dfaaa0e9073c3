// The one error type of Cenote: a closed code, and a sentence for a person.
// The codes are the same in C++, C (client/cenote.h) and Python (cenote.errors).
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace cenote {

/// Why something failed. Closed; the numbers are part of the C ABI and of the wire: append only.
enum class error_code : std::uint16_t {
  ok = 0,                 ///< success; never inside an `error`
  invalid_argument = 1,   ///< the caller passed something that can never work (size, key width, range)
  invalid_config = 2,     ///< a configuration key or value is wrong
  not_running = 3,        ///< no node answers at the socket
  node_restarting = 4,    ///< the node's worker was away for longer than the call's deadline
  deadline_exceeded = 5,  ///< the node is there but did not answer before the deadline
  protocol_mismatch = 6,  ///< the two sides speak different protocol versions
  layout_mismatch = 7,    ///< a segment or file has another magic, version or size
  spec_mismatch = 8,      ///< the instance exists with another spec; the message names the field
  permission_denied = 9,  ///< uid, gid or token is not allowed to do this
  no_space = 10,          ///< nothing can be evicted: all is pinned, pending, zombie or over quota
  pin_limit = 11,         ///< the session's share of pins is used up
  limit_exceeded = 12,    ///< a bound other than memory or pins (sessions, batch size, message size)
  revoked = 13,           ///< the grant or reservation was taken back; the commit is refused
  not_reserved = 14,      ///< commit of a block that this session does not hold (double or foreign commit)
  forked = 15,            ///< the handle belongs to the parent process
  closed = 16,            ///< the session or node was closed
  session_killed = 17,    ///< the operator, or the node itself, ended this session
  malformed = 18,         ///< bytes from the other side make no sense
  unsupported = 19,       ///< this build or machine cannot do it
  system = 20,            ///< a system call failed; the message has its name and errno's text
  internal = 21,          ///< a bug in Cenote
  removal_pending = 22,   ///< removed here; a path could not write that down, or another node has not confirmed it
  group_lost = 23,        ///< a group of ranks is broken: nothing that it was asked since holds; join again
};

/// The code's name as documented ("no_space"). Thread-safe.
[[nodiscard]] std::string_view to_string(error_code code) noexcept;

/// A failure: what was wrong, where, and what would be right.
class error {
 public:
  error(error_code code, std::string message) : code_(code), message_(std::move(message)) {}

  [[nodiscard]] error_code code() const noexcept { return code_; }
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

  /// The same code with `context` in front: "context: message".
  [[nodiscard]] error in(std::string_view context) const;

  /// "code: message", for logs and terminals.
  [[nodiscard]] std::string describe() const;

 private:
  error_code code_;
  std::string message_;
};

template <class T = void>
using result = std::expected<T, error>;

/// Shorthand for `return fail(code, "…")` in functions that return a result.
[[nodiscard]] inline std::unexpected<error> fail(error_code code, std::string message) {
  return std::unexpected(error(code, std::move(message)));
}

/// A `system` error from errno: "call: what: No such file or directory".
[[nodiscard]] std::unexpected<error> fail_errno(std::string_view call, std::string_view what = {});

/// As above with an explicit errno value.
[[nodiscard]] std::unexpected<error> fail_errno(int errno_value, std::string_view call, std::string_view what);

}  // namespace cenote
