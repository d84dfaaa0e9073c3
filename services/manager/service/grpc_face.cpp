#include "services/manager/service/grpc_face.hpp"

#include <string>
#include <utility>

namespace cenote::manager {

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
  return std::make_unique<call_desk>(writer_, settings_);
}

void grpc_face::give_back(std::unique_ptr<call_desk> desk) {
  const std::lock_guard lock(mutex_);
  desks_.push_back(std::move(desk));
}

void grpc_face::handle(std::string_view method, const std::shared_ptr<::cenote::rpc::open_call>& call) {
  const rpc_row* const row = find_grpc_path(method);
  auto desk = take_desk();
  const auto called = desk->call(*row, answer_form::wire, call->request(), [call](const answer_writer& write) {
    std::string answer;
    write(answer_form::wire, answer);
    call->finish(std::move(answer));
  });
  give_back(std::move(desk));
  if (!called) call->refuse(::cenote::rpc::call_status::invalid_argument, called.error().cause.message);
}

}  // namespace cenote::manager
