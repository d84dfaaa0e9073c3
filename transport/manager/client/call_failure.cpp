#include "transport/manager/client/call_failure.hpp"

namespace cenote::manager {

namespace {

error_code error_code_of(answer_code code) noexcept {
  switch (code) {
    case answer_code::invalid_argument: return error_code::invalid_argument;
    case answer_code::permission_denied: return error_code::permission_denied;
    case answer_code::unsupported: return error_code::unsupported;
    case answer_code::service_not_ready:
    case answer_code::server_not_leader: return error_code::node_restarting;
    case answer_code::reach_max_entity_capacity: return error_code::no_space;
    case answer_code::rate_limited: return error_code::limit_exceeded;
    case answer_code::internal_error: return error_code::internal;
    default: return error_code::system;
  }
}

}  // namespace

error to_error(const call_failure& failure) {
  switch (failure.fault) {
    case call_fault::refused: {
      const auto code = std::string(name_of(failure.code));
      return {error_code_of(failure.code), "the manager answers " + code + ": " + failure.message};
    }
    case call_fault::unreachable: return {error_code::not_running, failure.message};
    case call_fault::unanswered: return {error_code::deadline_exceeded, failure.message};
    case call_fault::unknown_outcome: break;
  }
  return {error_code::deadline_exceeded, "the outcome is not known, it may be done or not: " + failure.message};
}

}  // namespace cenote::manager
