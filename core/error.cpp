#include "core/error.hpp"

#include <cerrno>
#include <system_error>

namespace cenote {

std::string_view to_string(error_code code) noexcept {
  switch (code) {
    case error_code::ok: return "ok";
    case error_code::invalid_argument: return "invalid_argument";
    case error_code::invalid_config: return "invalid_config";
    case error_code::not_running: return "not_running";
    case error_code::node_restarting: return "node_restarting";
    case error_code::deadline_exceeded: return "deadline_exceeded";
    case error_code::protocol_mismatch: return "protocol_mismatch";
    case error_code::layout_mismatch: return "layout_mismatch";
    case error_code::spec_mismatch: return "spec_mismatch";
    case error_code::permission_denied: return "permission_denied";
    case error_code::no_space: return "no_space";
    case error_code::pin_limit: return "pin_limit";
    case error_code::limit_exceeded: return "limit_exceeded";
    case error_code::revoked: return "revoked";
    case error_code::not_reserved: return "not_reserved";
    case error_code::forked: return "forked";
    case error_code::closed: return "closed";
    case error_code::session_killed: return "session_killed";
    case error_code::malformed: return "malformed";
    case error_code::unsupported: return "unsupported";
    case error_code::system: return "system";
    case error_code::internal: return "internal";
    case error_code::removal_pending: return "removal_pending";
  }
  return "unknown";
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
