#include "services/manager/service/debug_calls.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "transport/manager/proto/debug.pb.h"

namespace cenote::manager {

namespace {

namespace debug = ::kv_cache_manager::proto::debug;

answer_writer answer_debug(const result<>& outcome) {
  if (outcome) return response_answer(debug::CommonResponse{});
  return refusal_answer<debug::CommonResponse>(
      {.code = answer_code::invalid_argument, .message = "api_name: " + outcome.error().message()});
}

result<> inject(fault_table& faults, const debug::InjectFaultRequest& request) {
  const bool is_kill = request.fault_type() == debug::FT_KILL;
  if (!is_kill && request.fault_type() != debug::FT_INTERNAL_ERROR) {
    return fail(error_code::invalid_argument, "fault_type is not FT_INTERNAL_ERROR (0) or FT_KILL (100)");
  }
  const bool is_once = request.fault_trigger_strategy() == debug::ONCE;
  if (!is_once && request.fault_trigger_strategy() != debug::ALWAYS) {
    return fail(error_code::invalid_argument, "fault_trigger_strategy is not ALWAYS (0) or ONCE (1)");
  }
  if (request.trigger_at_call() < 0) return fail(error_code::invalid_argument, "trigger_at_call is below 0");
  return faults.inject(request.api_name(),
                       {.kind = is_kill ? fault_kind::kill : fault_kind::failure,
                        .repetition = is_once ? fault_repetition::once : fault_repetition::always,
                        .first = static_cast<std::uint32_t>(std::max(1, request.trigger_at_call()))});
}

}  // namespace

std::expected<void, body_fault> debug_calls::call(enum rpc name, const call_body& body,
                                                  const answer_receiver& receive) {
  if (faults_ == nullptr) {
    receive(refusal_answer<debug::CommonResponse>(
        {.code = answer_code::unsupported,
         .message = std::string(row_of(name).name) + " is for tests: this manager runs without debug.enabled"}));
    return {};
  }
  if (name == rpc::inject_fault) {
    return with_request<debug::InjectFaultRequest>(
        body, [&](const auto& request) { receive(answer_debug(inject(*faults_, request))); });
  }
  if (name == rpc::remove_fault) {
    return with_request<debug::RemoveFaultRequest>(
        body, [&](const auto& request) { receive(answer_debug(faults_->remove(request.api_name()))); });
  }
  return with_request<debug::ClearFaultsRequest>(body, [&](const auto&) {
    faults_->clear();
    receive(answer_debug({}));
  });
}

std::optional<answer_writer> debug_calls::failure_of(const rpc_row& row) {
  if (faults_ == nullptr || row.service == rpc_service::debug) return std::nullopt;
  const auto passed = faults_->pass(row.name);
  if (passed) return std::nullopt;
  const rpc_refusal reason{.code = answer_code::internal_error, .message = passed.error().message()};
  return answer_writer(
      reason.code, [reason](answer_form form, std::string& out) { append_refusal(reason, form, out); }, reason.message);
}

}  // namespace cenote::manager
