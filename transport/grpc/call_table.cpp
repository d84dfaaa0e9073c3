#include "transport/grpc/call_table.hpp"

#include <chrono>
#include <utility>

#include "transport/grpc/server_call.hpp"

namespace cenote::rpc {

bool call_table::add(std::shared_ptr<server_call> call) {
  const std::lock_guard lock(mutex_);
  if (calls_.size() >= limit_) return false;
  const server_call* const key = call.get();
  return calls_.emplace(key, std::move(call)).second;
}

void call_table::remove(const server_call& call) {
  std::shared_ptr<server_call> removed;  // ends behind the lock
  const std::lock_guard lock(mutex_);
  const auto found = calls_.find(&call);
  if (found == calls_.end()) return;
  removed = std::move(found->second);
  calls_.erase(found);
}

// Under the lock, since gRPC's part of a call ends with its removal. gRPC reacts on threads of its own.
void call_table::cancel_late() {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  for (const auto& [key, call] : calls_) {
    if (call->is_late(now)) call->cancel();
  }
}

}  // namespace cenote::rpc
