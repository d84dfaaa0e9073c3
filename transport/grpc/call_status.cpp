#include "transport/grpc/call_status.hpp"

namespace cenote::rpc {

call_status status_of(error_code code) noexcept {
  switch (code) {
    case error_code::ok: return call_status::ok;
    case error_code::invalid_argument:
    case error_code::invalid_config:
    case error_code::malformed: return call_status::invalid_argument;
    case error_code::permission_denied: return call_status::permission_denied;
    case error_code::spec_mismatch: return call_status::failed_precondition;
    case error_code::limit_exceeded: return call_status::resource_exhausted;
    case error_code::not_running:
    case error_code::node_restarting:
    case error_code::deadline_exceeded:
    case error_code::unsupported:
    case error_code::closed:
    case error_code::no_space: return call_status::unavailable;
    default: return call_status::internal;
  }
}

}  // namespace cenote::rpc
