// A Redis server that a test plays: right by default, and as wrong as the test wants.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "core/unique_fd.hpp"
#include "tests/unit/tiers/remote/redis_values.hpp"

namespace cenote::remote {

/// Bytes to answer with.
struct fake_reply {
  std::string bytes{};
  bool closes = false;  ///< the connection, behind these bytes
};

/// Listens on a port of the loopback, a thread a connection. `play` answers a command; nothing: as a right server does.
class fake_redis {
 public:
  using script = std::function<std::optional<fake_reply>(const redis_words&)>;

  explicit fake_redis(script play) : play_(std::move(play)), listening_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    BOOST_REQUIRE(::bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0);
    BOOST_REQUIRE(::listen(listening_.get(), 64) == 0);
    BOOST_REQUIRE(::getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] { accept_all(); });
  }
  fake_redis(const fake_redis&) = delete;
  fake_redis& operator=(const fake_redis&) = delete;
  ~fake_redis() {
    ends_ = true;
    ::shutdown(listening_.get(), SHUT_RDWR);
    accepting_.join();
    for (std::thread& each : serving_) each.join();
  }

  [[nodiscard]] std::string url() const { return "redis://127.0.0.1:" + std::to_string(port_); }
  [[nodiscard]] int connections() const noexcept { return connections_; }

 private:
  void accept_all() {
    while (!ends_) {
      unique_fd accepted(::accept(listening_.get(), nullptr, nullptr));
      if (!accepted) continue;
      ++connections_;
      serving_.emplace_back([this, socket = std::move(accepted)] { serve(socket.get()); });
    }
  }

  void serve(int socket) {
    std::string in;
    while (!ends_) {
      pollfd polled{.fd = socket, .events = POLLIN, .revents = 0};
      if (::poll(&polled, 1, 10) <= 0) continue;
      std::string some(std::size_t{1} << 16U, '\0');
      const ssize_t n = ::recv(socket, some.data(), some.size(), 0);
      if (n <= 0) return;
      in.append(some, 0, static_cast<std::size_t>(n));
      while (const auto command = take_redis_command(in)) {
        auto reply = play_(*command);
        if (!reply) reply = fake_reply{.bytes = right_answer(*command)};
        if (!send_all(socket, reply->bytes) || reply->closes) return;
      }
    }
  }

  bool send_all(int socket, std::string_view bytes) const {
    while (!bytes.empty() && !ends_) {
      const ssize_t n = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(n));
    }
    return true;
  }

  std::string right_answer(const redis_words& words) {
    const std::lock_guard lock(mutex_);
    return kept_.answer(words);
  }

  script play_;
  unique_fd listening_;
  int port_ = 0;
  std::atomic<bool> ends_ = false;
  std::atomic<int> connections_ = 0;
  std::mutex mutex_;
  redis_values kept_;                 // guarded by mutex_
  std::vector<std::thread> serving_;  // of accepting_ alone until it has ended
  std::thread accepting_;
};

}  // namespace cenote::remote
