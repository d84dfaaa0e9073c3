// The codes of the manager's answers, and results that carry one.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace cenote::manager {

/// The code of an answer; the numbers are those of the wire.
enum class answer_code : std::uint16_t {
  unspecified = 0,
  ok = 1,                         ///< never inside a `rpc_refusal`
  unsupported = 2,                ///< not built; the message has the part that is missing
  internal_error = 3,             ///< a bug of the manager
  service_not_ready = 4,          ///< promoting, recovering, stopping
  invalid_argument = 5,           ///< the message names all offending fields
  duplicate_entity = 6,           ///< the same id with another content; the message names the first field that differs
  reach_max_entity_capacity = 7,  ///< a quota or a bound is reached; nothing was granted
  instance_not_exist = 8,
  server_not_leader = 9,  ///< the header has the leader's address
  node_not_registered = 10,
  snapshot_in_progress = 11,
  snapshot_rate_limited = 13,
  snapshot_required = 14,
  io_error = 20,  ///< no usable storage, or the store does not answer
  unknown_error = 100,
  not_found = 1001,  ///< a group, storage or account
  session_not_found = 1002,
  permission_denied = 1003,
  rate_limited = 1004,
  version_conflict = 1005,  ///< the message has the stored version
  in_use = 1006,
};

/// The code's name on the wire ("INVALID_ARGUMENT"). Thread-safe.
[[nodiscard]] constexpr std::string_view name_of(answer_code code) noexcept {
  switch (code) {
    case answer_code::unspecified: return "UNSPECIFIED";
    case answer_code::ok: return "OK";
    case answer_code::unsupported: return "UNSUPPORTED";
    case answer_code::internal_error: return "INTERNAL_ERROR";
    case answer_code::service_not_ready: return "SERVICE_NOT_READY";
    case answer_code::invalid_argument: return "INVALID_ARGUMENT";
    case answer_code::duplicate_entity: return "DUPLICATE_ENTITY";
    case answer_code::reach_max_entity_capacity: return "REACH_MAX_ENTITY_CAPACITY";
    case answer_code::instance_not_exist: return "INSTANCE_NOT_EXIST";
    case answer_code::server_not_leader: return "SERVER_NOT_LEADER";
    case answer_code::node_not_registered: return "NODE_NOT_REGISTERED";
    case answer_code::snapshot_in_progress: return "SNAPSHOT_IN_PROGRESS";
    case answer_code::snapshot_rate_limited: return "SNAPSHOT_RATE_LIMITED";
    case answer_code::snapshot_required: return "SNAPSHOT_REQUIRED";
    case answer_code::io_error: return "IO_ERROR";
    case answer_code::unknown_error: return "UNKNOWN_ERROR";
    case answer_code::not_found: return "NOT_FOUND";
    case answer_code::session_not_found: return "SESSION_NOT_FOUND";
    case answer_code::permission_denied: return "PERMISSION_DENIED";
    case answer_code::rate_limited: return "RATE_LIMITED";
    case answer_code::version_conflict: return "VERSION_CONFLICT";
    case answer_code::in_use: return "IN_USE";
  }
  return "?";
}

/// A request that was not done: the fault, its place, and the remedy.
struct rpc_refusal {
  answer_code code = answer_code::internal_error;
  std::string message = {};
};

template <class T = void>
using rpc_outcome = std::expected<T, rpc_refusal>;

/// Shorthand for `return refuse(code, "…")` in functions that return an rpc_outcome.
[[nodiscard]] inline std::unexpected<rpc_refusal> refuse(answer_code code, std::string message) {
  return std::unexpected(rpc_refusal{.code = code, .message = std::move(message)});
}

}  // namespace cenote::manager
