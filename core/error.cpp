#include "core/error.hpp"

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/enum_names.hpp"

namespace cenote {

namespace {

CENOTE_ENUM_NAMES(error_code, ok, invalid_argument, invalid_config, not_running, node_restarting, deadline_exceeded,
                  protocol_mismatch, layout_mismatch, spec_mismatch, permission_denied, no_space, pin_limit,
                  limit_exceeded, revoked, not_reserved, forked, closed, session_killed, malformed, unsupported, system,
                  internal, removal_pending, group_lost);
constexpr auto known_codes = enumerators_of(error_code{});

}  // namespace

std::string_view to_string(error_code code) noexcept {
  return std::ranges::find(known_codes, code) == known_codes.end() ? "unknown" : name_of(code);
}

error error::in(std::string_view context) const {
  return {code_, std::string(context) + ": " + message_};
}

std::string error::describe() const {
  return std::string(to_string(code_)) + ": " + message_;
}

std::unexpected<error> fail_errno(std::string_view call, std::string_view what) {
  return fail_errno(errno, call, what);
}

std::unexpected<error> fail_errno(int errno_value, std::string_view call, std::string_view what) {
  std::string text(call);
  if (!what.empty()) text.append(": ").append(what);
  text.append(": ").append(std::generic_category().message(errno_value));
  return fail(error_code::system, std::move(text));
}

}  // namespace cenote
