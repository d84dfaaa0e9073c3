#include "transport/grpc/server_call.hpp"

#include <exception>
#include <new>
#include <utility>

namespace cenote::rpc {

namespace {

constexpr server_call::time_point::rep no_deadline = server_call::time_point::max().time_since_epoch().count();

/// The bytes of a text, which it takes over.
grpc::ByteBuffer buffer_of(std::string text) {
  auto owned = std::make_unique<std::string>(std::move(text));
  std::string* const bytes = owned.get();
  const grpc::Slice slice(
      bytes->data(), bytes->size(), [](void* owner) { delete static_cast<std::string*>(owner); }, bytes);
  (void)owned.release();
  return {&slice, 1};
}

}  // namespace

server_call::server_call(call_table& table, call_handler& handler, const rpc_server_limits& limits,
                         grpc::GenericCallbackServerContext& context)
    : table_(table), handler_(handler), limits_(limits), context_(context), deadline_(no_deadline) {}

void server_call::start() {
  state_.store(busy, std::memory_order_relaxed);
  set_deadline(limits_.request);
  StartRead(&received_);
}

std::string_view server_call::request() const noexcept {
  return {reinterpret_cast<const char*>(request_.begin()), request_.size()};
}

void server_call::OnReadDone(bool ok) {
  clear_deadline();
  if (!ok) {
    refuse(call_status::invalid_argument, "the call has no message");
  } else if (!received_.TrySingleSlice(&request_).ok() && !received_.DumpToSingleSlice(&request_).ok()) {
    refuse(call_status::resource_exhausted, "there is no memory for the message");
  }
  received_.Clear();
  if (release()) handle();
}

void server_call::handle() {
  try {
    handler_.handle(context_.method(), shared_from_this());
  } catch (const std::bad_alloc&) {
    refuse(call_status::resource_exhausted, "there is no memory for the answer");
  } catch (const std::exception& failure) {
    refuse(call_status::internal, failure.what());
  } catch (...) {
    refuse(call_status::internal, "an unknown fault");
  }
}

void server_call::finish(std::string answer) {
  if (is_over_.exchange(true, std::memory_order_acq_rel)) return;
  answer_ = std::move(answer);
  if ((state_.fetch_or(ending, std::memory_order_acq_rel) & busy) == 0) end();
}

void server_call::refuse(call_status status, std::string reason) {
  if (is_over_.exchange(true, std::memory_order_acq_rel)) return;
  status_ = grpc::Status(static_cast<grpc::StatusCode>(status), std::move(reason));
  if ((state_.fetch_or(ending, std::memory_order_acq_rel) & busy) == 0) end();
}

bool server_call::send(std::string message) {
  std::uint8_t idle = 0;
  if (!state_.compare_exchange_strong(idle, busy, std::memory_order_acq_rel)) return false;
  sent_ = buffer_of(std::move(message));
  set_deadline(limits_.answer);
  StartWrite(&sent_);
  return true;
}

void server_call::OnWriteDone(bool ok) {
  clear_deadline();
  sent_.Clear();
  if (!ok) refuse(call_status::cancelled, "the client is gone");
  (void)release();
}

bool server_call::release() {
  if ((state_.fetch_and(static_cast<std::uint8_t>(~busy), std::memory_order_acq_rel) & ending) == 0) return true;
  end();
  return false;
}

// gRPC's part of the call may be gone when this returns.
void server_call::end() {
  set_deadline(limits_.answer);
  if (!answer_) return Finish(status_);
  sent_ = buffer_of(std::move(*answer_));
  StartWriteAndFinish(&sent_, grpc::WriteOptions(), status_);
}

void server_call::OnCancel() {
  refuse(call_status::cancelled, "the client is gone");
}

void server_call::OnDone() {
  table_.remove(*this);
}

bool server_call::is_late(time_point now) const noexcept {
  return now.time_since_epoch().count() >= deadline_.load(std::memory_order_relaxed);
}

void server_call::set_deadline(std::chrono::milliseconds limit) noexcept {
  deadline_.store((std::chrono::steady_clock::now() + limit).time_since_epoch().count(), std::memory_order_relaxed);
}

void server_call::clear_deadline() noexcept {
  deadline_.store(no_deadline, std::memory_order_relaxed);
}

}  // namespace cenote::rpc
