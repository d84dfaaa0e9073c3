#include "services/manager/service/grpc_face.hpp"

#include <chrono>
#include <string>
#include <utility>

namespace cenote::manager {

namespace {

void refuse_over_grpc(const access_refusal& refusal, ::cenote::rpc::open_call& call) {
  using ::cenote::rpc::call_status;
  std::string answer;
  switch (refusal.fault) {
    case access_fault::not_ready:
      append_refusal({.code = answer_code::service_not_ready, .message = refusal.message}, answer_form::wire, answer);
      return call.finish(std::move(answer));
    case access_fault::no_account: return call.refuse(call_status::unauthenticated, refusal.message);
    case access_fault::no_right: return call.refuse(call_status::permission_denied, refusal.message);
    case access_fault::too_many:
      return call.refuse(call_status::resource_exhausted,
                         refusal.message + " in " + std::to_string(seconds_of(refusal.retry_after)) + " s");
  }
}

}  // namespace

bool grpc_face::has_method(std::string_view method) const noexcept {
  const rpc_row* const row = find_grpc_path(method);
  return row != nullptr && row->face() == face_;
}

std::unique_ptr<call_desk> grpc_face::take_desk() {
  {
    const std::lock_guard lock(mutex_);
    if (!desks_.empty()) {
      auto desk = std::move(desks_.back());
      desks_.pop_back();
      return desk;
    }
  }
  return std::make_unique<call_desk>(parts_);
}

void grpc_face::give_back(std::unique_ptr<call_desk> desk) {
  const std::lock_guard lock(mutex_);
  desks_.push_back(std::move(desk));
}

void grpc_face::handle(std::string_view method, const shared_call& call) {
  const rpc_row& row = *find_grpc_path(method);
  const ::cenote::rpc::call_origin origin = call->origin();
  const call_evidence evidence{.address = origin.peer_address,
                               .certificate_name = origin.certificate_name,
                               .authorization = origin.authorization};
  auto desk = take_desk();
  const manager_registry registry = desk->registry();
  give_back(std::move(desk));
  const auto access = parts_.access.control().look(evidence, registry, row.role, std::chrono::steady_clock::now());
  if (access) return answer(row, call, *access);
  parts_.access.check(evidence, registry, row.role,
                      [this, &row, call](const access_outcome<call_access>& outcome) { answer(row, call, outcome); });
}

void grpc_face::answer(const rpc_row& row, const shared_call& call, const access_outcome<call_access>& access) {
  if (!access) return refuse_over_grpc(access.error(), *call);
  auto admitted = parts_.access.control().admit(*access, call->request().size(), std::chrono::steady_clock::now());
  if (!admitted) return refuse_over_grpc(admitted.error(), *call);
  const auto bytes = std::make_shared<const request_bytes>(std::move(*admitted));
  const call_timer timer(parts_.counts, row.call);
  const auto receive = [call, bytes, timer](const answer_writer& write) {
    std::string answer;
    write(answer_form::wire, answer);
    timer.end(write.code());
    call->finish(std::move(answer));
  };
  auto desk = take_desk();
  const auto called = desk->call(row, answer_form::wire, call->request(), *access, receive);
  give_back(std::move(desk));
  if (called) return;
  timer.end(called.error().cause.code);
  call->refuse(::cenote::rpc::call_status::invalid_argument, called.error().cause.message);
}

}  // namespace cenote::manager
