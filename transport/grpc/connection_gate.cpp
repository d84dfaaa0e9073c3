#include "transport/grpc/connection_gate.hpp"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <exception>
#include <utility>

namespace cenote::rpc {

namespace {

constexpr std::chrono::milliseconds tick{500};
constexpr std::chrono::milliseconds accept_delay{100};  ///< when this process is out of descriptors

}  // namespace

result<connection_gate> connection_gate::open(std::vector<unique_fd> listeners, std::size_t limit) {
  unique_fd poll(::epoll_create1(EPOLL_CLOEXEC));
  if (!poll) return fail_errno("epoll_create1");
  unique_fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("eventfd");
  connection_gate gate(std::move(poll), std::move(wake), std::move(listeners), limit);
  if (auto watched = gate.watch(gate.wake_.get(), EPOLLIN); !watched) return std::unexpected(watched.error());
  for (const unique_fd& each : gate.listeners_) {
    if (auto watched = gate.watch(each.get(), EPOLLIN); !watched) return std::unexpected(watched.error());
  }
  return gate;
}

result<void> connection_gate::watch(int descriptor, unsigned events) const {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  if (::epoll_ctl(poll_.get(), EPOLL_CTL_ADD, descriptor, &event) != 0) return fail_errno("epoll_ctl");
  return {};
}

void connection_gate::start(receivers takers) {
  takers_ = std::move(takers);
  thread_ = std::thread([this] { run(); });
}

void connection_gate::stop() noexcept {
  if (!thread_.joinable()) return;
  const std::uint64_t one = 1;
  (void)::write(wake_.get(), &one, sizeof one);
  thread_.join();
  listeners_.clear();
  connections_.clear();
}

void connection_gate::run() {
  ::pthread_setname_np(::pthread_self(), "cenote-grpc");
  std::array<epoll_event, 64> events{};
  auto next_tick = std::chrono::steady_clock::now() + tick;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(next_tick - std::chrono::steady_clock::now());
    const auto wait = std::max(left, std::chrono::milliseconds(0));
    const int count =
        ::epoll_wait(poll_.get(), events.data(), static_cast<int>(events.size()), static_cast<int>(wait.count()));
    for (int i = 0; i < count; ++i) {
      if (!react_to(events[static_cast<std::size_t>(i)].data.fd)) return;
    }
    if (std::chrono::steady_clock::now() < next_tick) continue;
    takers_.tick();
    next_tick = std::chrono::steady_clock::now() + tick;
  }
}

bool connection_gate::react_to(int descriptor) {
  if (descriptor == wake_.get()) return false;
  if (connections_.erase(descriptor) != 0) return true;
  accept_all(descriptor);
  return true;
}

void connection_gate::accept_all(int listener) {
  for (;;) {
    unique_fd connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) std::this_thread::sleep_for(accept_delay);
      return;
    }
    if (connections_.size() >= limit_) continue;
    try {
      hand_over(std::move(connection));
    } catch (const std::exception&) {
      continue;  // out of memory: the connection is closed
    }
  }
}

void connection_gate::hand_over(unique_fd connection) {
  auto second = connection.duplicate();
  if (!second || !watch(second->get(), 0)) return;  // EPOLLHUP always comes
  const int yes = 1;
  ::setsockopt(connection.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  connections_.emplace(second->get(), std::move(*second));
  takers_.connection(std::move(connection));
}

}  // namespace cenote::rpc
