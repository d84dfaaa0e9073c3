#include "services/manager/service/call_desk.hpp"

#include <chrono>
#include <memory>
#include <string>
#include <utility>

namespace cenote::manager {

namespace {

/// A call until it has its answer.
struct timed_call {
  std::string_view name{};
  std::chrono::steady_clock::time_point begin{};
  std::string trace_id{};

  void end(call_log& log, answer_code code, std::string_view reason) const {
    const auto now = std::chrono::steady_clock::now();
    if (!call_log::wants(code, now - begin)) return;
    log.note({.name = name, .code = code, .reason = reason, .trace_id = trace_id, .time = now - begin}, now);
  }
};

}  // namespace

std::expected<void, body_fault> call_desk::call(const rpc_row& row, answer_form form, std::string_view body,
                                                const call_access& access, answer_receiver receive) {
  if (row.service == rpc_service::debug) {
    return debug_.call(row.call, {.form = form, .text = body}, receive);
  }
  const auto timed =
      std::make_shared<timed_call>(timed_call{.name = row.name, .begin = std::chrono::steady_clock::now()});
  const call_body bytes{.form = form, .text = body, .trace_id = &timed->trace_id};
  auto outcome =
      pass(row, bytes, access, [&log = parts_.log, timed, receive = std::move(receive)](answer_writer write) {
        timed->end(log, write.code(), write.reason());
        receive(std::move(write));
      });
  if (outcome) return outcome;
  find_trace_id(bytes);
  timed->end(parts_.log, outcome.error().cause.code, outcome.error().cause.message);
  return outcome;
}

std::expected<void, body_fault> call_desk::pass(const rpc_row& row, const call_body& body, const call_access& access,
                                                answer_receiver receive) {
  if (auto failure = debug_.failure_of(row)) {
    find_trace_id(body);
    receive(std::move(*failure));
    return {};
  }
  const bool is_meta = (row.service == rpc_service::meta && row.call != rpc::get_cluster_info) ||
                       row.call == rpc::admin_get_cache_meta || row.call == rpc::admin_remove_cache;
  if (!is_meta) return admin_.call(row.call, body, access.rights, std::move(receive));
  auto outcome = meta_.call(row.call, body, access.rights, std::move(receive));
  parts_.access.control().charge_keys(access, meta_.take_key_count(), std::chrono::steady_clock::now());
  return outcome;
}

}  // namespace cenote::manager
