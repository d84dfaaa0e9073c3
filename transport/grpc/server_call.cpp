#include "transport/grpc/server_call.hpp"

#include <grpc/grpc_security_constants.h>
#include <grpcpp/security/auth_context.h>

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

/// The address of gRPC's "ipv4:127.0.0.1:80", or "ipv6:%5B::1%5D:80" with brackets either way.
std::string address_of(std::string_view peer) {
  const bool is_v6 = peer.starts_with("ipv6:");
  if (!is_v6 && !peer.starts_with("ipv4:")) return {};
  peer.remove_prefix(5);
  peer = peer.substr(0, peer.rfind(':'));
  if (!is_v6) return std::string(peer);
  for (const std::string_view bracket : {"%5B", "["}) {
    if (peer.starts_with(bracket)) peer.remove_prefix(bracket.size());
  }
  return std::string(peer.substr(0, peer.find_first_of("%]")));
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

call_origin server_call::origin() const {
  call_origin origin{.peer_address = address_of(context_.peer())};
  const auto& headers = context_.client_metadata();
  if (const auto sent = headers.find("authorization"); sent != headers.end()) {
    origin.authorization.assign(sent->second.data(), sent->second.size());
  }
  const auto security = context_.auth_context();
  if (security == nullptr || !security->IsPeerAuthenticated()) return origin;
  const auto names = security->FindPropertyValues(GRPC_X509_CN_PROPERTY_NAME);
  if (names.size() == 1) origin.certificate_name.assign(names.front().data(), names.front().size());
  return origin;
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

void server_call::refuse(call_status status, const std::string& reason) {
  if (is_over_.exchange(true, std::memory_order_acq_rel)) return;
  status_ = grpc::Status(static_cast<grpc::StatusCode>(status), reason);
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
