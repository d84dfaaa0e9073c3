#include "transport/http/server.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/unique_fd.hpp"
#include "transport/http/page_maker.hpp"
#include "transport/http/request.hpp"

namespace cenote::http {

namespace {

using clock = std::chrono::steady_clock;

constexpr int backlog = 64;
constexpr auto accept_pause = std::chrono::milliseconds(100);  // when this process is out of descriptors

struct addresses {
  addrinfo* first = nullptr;
  addresses() = default;
  addresses(const addresses&) = delete;
  addresses& operator=(const addresses&) = delete;
  ~addresses() {
    if (first != nullptr) ::freeaddrinfo(first);
  }
};

result<unique_fd> listen_at(const addrinfo& address, const std::string& name) {
  const int type = address.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK;
  unique_fd socket(::socket(address.ai_family, type, address.ai_protocol));
  if (!socket) return fail_errno("socket", name);
  // Without SO_REUSEPORT, which would let two nodes share a port unnoticed.
  const int yes = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (::bind(socket.get(), address.ai_addr, address.ai_addrlen) != 0) return fail_errno("bind", name);
  if (::listen(socket.get(), backlog) != 0) return fail_errno("listen", name);
  return socket;
}

result<unique_fd> listen_at(const endpoint& address) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addresses found;
  const int wrong = ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found.first);
  if (wrong != 0) return fail(error_code::system, address.text() + ": " + ::gai_strerror(wrong));
  result<unique_fd> last = fail(error_code::system, address.text() + ": no address");
  for (const addrinfo* each = found.first; each != nullptr && !last; each = each->ai_next) {
    last = listen_at(*each, address.text());
  }
  return last;
}

std::uint16_t port_of(int socket) {
  sockaddr_storage where{};
  socklen_t size = sizeof where;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&where), &size) != 0) return 0;
  return ntohs(where.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6&>(where).sin6_port
                                           : reinterpret_cast<const sockaddr_in&>(where).sin_port);
}

}  // namespace

/// The thread of all connections; what is not atomic or under the lock is its own.
class server::loop {
 public:
  loop(unique_fd listener, unique_fd wake, server_limits limits)
      : limits_(limits), listener_(std::move(listener)), wake_(std::move(wake)) {}
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  ~loop() { stop(); }

  void start(std::map<std::string, page_source> pages) {
    pages_ = std::move(pages);
    maker_ = std::make_unique<page_maker>(pages_, [this](const std::string& path, answer page) {
      {
        const std::lock_guard lock(mutex_);
        new_pages_.emplace_back(path, std::move(page));
      }
      wake();
    });
    thread_ = std::thread([this] { run(); });
  }
  void stop() noexcept {
    if (!thread_.joinable()) return;
    stopping_ = true;
    wake();
    thread_.join();
    maker_.reset();
    connections_.clear();
    listener_.reset();
  }

 private:
  enum class phase : std::uint8_t { reading, waiting, writing };
  struct connection {
    unique_fd socket;
    phase stage = phase::reading;
    clock::time_point deadline;  ///< of reading or writing
    std::string received;
    request wants;
    std::string out;
    std::size_t sent = 0;
    bool is_over = false;
  };
  struct known_page {
    answer last;
    std::optional<clock::time_point> made;  ///< nothing: never; the clock may have begun to count a moment ago
    bool asked = false;
  };

  void wake() const noexcept {
    const std::uint64_t one = 1;
    (void)!::write(wake_.get(), &one, sizeof one);
  }

  void run() {
    ::pthread_setname_np(::pthread_self(), "cenote-http");
    std::vector<pollfd> waits;
    while (!stopping_) {
      const auto now = clock::now();
      waits.clear();
      waits.push_back({wake_.get(), POLLIN, 0});
      waits.push_back({now < accept_after_ ? -1 : listener_.get(), POLLIN, 0});
      for (const connection& each : connections_) {
        const auto events = static_cast<short>(each.stage == phase::writing ? POLLOUT : POLLIN);
        waits.push_back({each.socket.get(), each.stage == phase::waiting ? short{0} : events, 0});
      }
      if (::poll(waits.data(), waits.size(), patience(now)) < 0 && errno != EINTR) return;
      auto each = connections_.begin();
      for (std::size_t i = 2; i < waits.size(); ++i, ++each) {
        if (waits[i].revents != 0) carry_on(*each);
      }
      if (waits[0].revents != 0) take_pages();
      if (waits[1].revents != 0) accept_all();
      end_late(clock::now());
    }
  }

  /// Milliseconds until the next deadline; -1: none.
  [[nodiscard]] int patience(clock::time_point now) const {
    std::optional<clock::time_point> next;
    if (now < accept_after_) next = accept_after_;
    for (const connection& each : connections_) {
      if (each.stage != phase::waiting && (!next || each.deadline < *next)) next = each.deadline;
    }
    if (!next) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(*next - now).count();
    return static_cast<int>(std::max<decltype(left)>(left, 0));
  }

  void end_late(clock::time_point now) {
    std::erase_if(connections_, [&](const connection& each) {
      return each.is_over || (each.stage != phase::waiting && each.deadline <= now);
    });
  }

  void accept_all() {
    while (true) {
      unique_fd socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!socket) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) accept_after_ = clock::now() + accept_pause;
        return;
      }
      if (connections_.size() >= limits_.connections && !make_room()) continue;  // closed at once
      connection made;
      made.socket = std::move(socket);
      made.deadline = clock::now() + limits_.request;
      connections_.push_back(std::move(made));
      carry_on(connections_.back());  // most requests are there already
    }
  }

  /// Closes the connection whose request is incomplete for the longest time, or else the one that waits for a page
  /// the longest: they are in the order of arrival.
  bool make_room() {
    auto goes = std::ranges::find(connections_, phase::reading, &connection::stage);
    if (goes == connections_.end()) goes = std::ranges::find(connections_, phase::waiting, &connection::stage);
    if (goes == connections_.end()) return false;
    connections_.erase(goes);
    return true;
  }

  void carry_on(connection& peer) {
    switch (peer.stage) {
      case phase::reading: read(peer); break;
      case phase::waiting: peer.is_over = true; break;  // it hung up
      case phase::writing: write(peer); break;
    }
  }

  void read(connection& peer) {
    std::array<char, 2048> bytes;
    bool ended = false;
    while (peer.received.size() < max_request_bytes) {
      const ssize_t got = ::recv(peer.socket.get(), bytes.data(), bytes.size(), 0);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
      if (got < 0) {
        peer.is_over = true;
        return;
      }
      if (got == 0) {  // nothing more comes, but it may wait for the answer
        ended = true;
        break;
      }
      peer.received.append(bytes.data(), static_cast<std::size_t>(got));
    }
    auto asked = parse_request(peer.received);
    if (!asked) {
      peer.is_over = ended;
      return;
    }
    peer.wants = std::move(*asked);
    if (peer.wants.refusal != 0) return begin(peer, refusal_of(peer.wants.refusal));
    const auto found = pages_.find(peer.wants.path);
    if (found == pages_.end()) return begin(peer, refusal_of(404));
    if (found->second.from_memory) return begin(peer, make_answer(found->second));
    known_page& page = last_pages_[found->first];
    const bool is_fresh = page.made && clock::now() - *page.made < limits_.fresh;
    if (!page.asked && is_fresh) return begin(peer, page.last);
    peer.stage = phase::waiting;
    if (!std::exchange(page.asked, true)) maker_->ask(found->first);
  }

  void take_pages() {
    std::uint64_t count = 0;
    (void)!::read(wake_.get(), &count, sizeof count);
    std::vector<std::pair<std::string, answer>> made;
    {
      const std::lock_guard lock(mutex_);
      made.swap(new_pages_);
    }
    for (auto& [path, what] : made) {
      last_pages_[path] = {std::move(what), clock::now(), false};
      for (connection& each : connections_) {
        if (each.stage == phase::waiting && each.wants.path == path) begin(each, last_pages_[path].last);
      }
    }
  }

  void begin(connection& peer, const answer& page) {
    peer.out = encode(page, peer.wants.head_only);
    peer.stage = phase::writing;
    peer.deadline = clock::now() + limits_.answer;
    write(peer);
  }

  void write(connection& peer) {
    while (peer.sent < peer.out.size()) {
      const ssize_t sent =
          ::send(peer.socket.get(), peer.out.data() + peer.sent, peer.out.size() - peer.sent, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
      if (sent < 0) break;
      peer.sent += static_cast<std::size_t>(sent);
    }
    peer.is_over = true;
    // Bytes behind the request are read: a connection that is closed over it is reset, and the answer lost.
    ::shutdown(peer.socket.get(), SHUT_WR);
    std::array<char, 2048> rest;
    for (int i = 0; i < 64 && ::recv(peer.socket.get(), rest.data(), rest.size(), 0) > 0; ++i) continue;
  }

  const server_limits limits_;
  unique_fd listener_;
  unique_fd wake_;
  std::map<std::string, page_source> pages_;
  std::map<std::string, known_page> last_pages_;
  std::list<connection> connections_;
  clock::time_point accept_after_{};
  std::mutex mutex_;
  std::vector<std::pair<std::string, answer>> new_pages_;  ///< with mutex
  std::atomic<bool> stopping_ = false;
  std::unique_ptr<page_maker> maker_;
  std::thread thread_;
};

server::server(endpoint address, std::unique_ptr<loop> threads)
    : address_(std::move(address)), loop_(std::move(threads)) {}

server::~server() = default;

result<std::unique_ptr<server>> server::bind(const endpoint& address, server_limits limits) {
  auto listener = listen_at(address);
  if (!listener) return std::unexpected(listener.error());
  unique_fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("eventfd");
  endpoint bound = address;
  bound.port = port_of(listener->get());
  auto made = std::make_unique<loop>(std::move(*listener), std::move(wake), limits);
  return std::unique_ptr<server>(new server(std::move(bound), std::move(made)));
}

void server::serve(std::map<std::string, page_source> pages) {
  loop_->start(std::move(pages));
}

void server::stop() noexcept {
  loop_->stop();
}

}  // namespace cenote::http
