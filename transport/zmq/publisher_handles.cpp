#include "transport/zmq/publisher_handles.hpp"

#include <zmq.h>

#include <array>
#include <cerrno>
#include <cstdint>

namespace cenote::zmq {

namespace {

constexpr std::int64_t most_frame_bytes = 4096;
constexpr int beat_ms = 5'000, silence_ms = 15'000;  // a peer whose machine is gone holds nothing for long

std::unexpected<error> zmq_failure(const std::string& call) {
  return fail(error_code::system, call + ": " + ::zmq_strerror(::zmq_errno()));
}

}  // namespace

void publisher_context_end::operator()(void* context) const noexcept {
  while (::zmq_ctx_term(context) != 0 && ::zmq_errno() == EINTR) continue;
}

void publisher_handle_end::operator()(void* socket) const noexcept {
  (void)::zmq_close(socket);
}

result<publisher_context> make_publisher_context() {
  publisher_context made(::zmq_ctx_new());
  if (!made) return zmq_failure("zmq_ctx_new");
  return made;
}

result<publisher_handle> bind_publisher(const publisher_context& context, int type, const std::string& endpoint,
                                        publisher_queues queues) {
  publisher_handle made(::zmq_socket(context.get(), type));
  if (!made) return zmq_failure("zmq_socket");
  const auto set = [&](int option, const auto& value) {
    return ::zmq_setsockopt(made.get(), option, &value, sizeof value) == 0;
  };
  const bool is_v6 = endpoint.find('[') != std::string::npos;
  const bool is_set = set(ZMQ_LINGER, 0) && set(ZMQ_SNDHWM, queues.outgoing) && set(ZMQ_RCVHWM, queues.incoming) &&
                      set(ZMQ_MAXMSGSIZE, most_frame_bytes) && set(ZMQ_HEARTBEAT_IVL, beat_ms) &&
                      set(ZMQ_HEARTBEAT_TIMEOUT, silence_ms) && set(ZMQ_IPV6, is_v6 ? 1 : 0) &&
                      (type != ZMQ_ROUTER || set(ZMQ_ROUTER_MANDATORY, 1));
  if (!is_set) return zmq_failure("zmq_setsockopt");
  if (::zmq_bind(made.get(), endpoint.c_str()) != 0) return zmq_failure(endpoint);
  return made;
}

std::string endpoint_of(const publisher_handle& socket) {
  std::array<char, 256> text{};
  std::size_t size = text.size();
  if (::zmq_getsockopt(socket.get(), ZMQ_LAST_ENDPOINT, text.data(), &size) != 0) return {};
  return text.data();
}

}  // namespace cenote::zmq
