// A server in this process and raw sockets to it.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <charconv>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>

#include "core/socket_address.hpp"
#include "core/unique_fd.hpp"
#include "transport/http/request_server.hpp"

namespace cenote::http {

/// A place where a handler waits until the test goes on.
class service_gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return is_open_; });
  }
  void await_visitor() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return waiting_ > 0; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    is_open_ = true;
    changed_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int waiting_ = 0;
  bool is_open_ = false;
};

/// Parts "0;", "1;", … of a long answer.
class numbered_parts final : public reply_source {
 public:
  explicit numbered_parts(int count) : count_(count) {}
  bool next(std::string& out) override {
    if (count_ < 0 && ++next_ == 3) throw std::runtime_error("cut");
    out += std::to_string(next_++) + ";";
    return next_ != count_;
  }

 private:
  int count_;
  int next_ = 0;
};

/// Fires its event on another thread, or never.
struct other_thread_event final : reply_event {
  ~other_thread_event() override {
    if (thread.joinable()) thread.join();
  }
  std::string text;
  std::thread thread;
};

/// Parts that are not there whenever they are asked for the first time.
class hesitant_parts final : public reply_source {
 public:
  bool next(std::string& out) override {
    if (++calls_ % 2 == 1) return true;
    out += "part;";
    return calls_ < 6;
  }

 private:
  int calls_ = 0;
};

/// Answers with what it was asked.
class echo_handler final : public request_handler {
 public:
  explicit echo_handler(service_gate& gate) : gate_(gate) {}

  void handle(const http_request& request, http_reply& reply) override {
    if (request.path == "/throw") throw std::runtime_error("it \"failed\"");
    if (request.path == "/gate") gate_.pass();
    if (request.path == "/post" && request.method != "POST") return reply.refuse_method("POST");
    if (request.path == "/missing") return reply.fail(404, "there is no /missing");
    reply.content_type = "text/plain";
    if (request.path == "/login") {
      reply.status = 401;
      reply.challenge = "Basic realm=\"here\"";
      return;
    }
    if (request.path == "/busy") {
      reply.status = 429;
      reply.retry_after = 7;
      return;
    }
    if (request.path == "/peer") {
      reply.body.append(request.peer_address).append(" ").append(request.certificate_name);
      return;
    }
    if (request.path == "/later") return answer_later(request, reply);
    if (request.path == "/never") {
      reply.event = std::make_shared<other_thread_event>();
      return;
    }
    if (request.path == "/hesitant") {
      reply.rest = std::make_unique<hesitant_parts>();
      return;
    }
    if (request.path == "/large") {
      reply.body.assign(64U << 20U, 'x');
    } else if (request.path == "/parts") {
      reply.body = "begin;";
      reply.rest = std::make_unique<numbered_parts>(1000);
    } else if (request.path == "/cut") {
      reply.rest = std::make_unique<numbered_parts>(-1);
    } else if (request.path == "/size") {
      reply.body = std::to_string(request.body.size());
    } else {
      reply.body.append(request.method).append(" ").append(request.path).append("?").append(request.query).append(" ");
      reply.body.append(reinterpret_cast<const char*>(request.body.data()), request.body.size());
    }
  }

 private:
  static void answer_later(const http_request& request, http_reply& reply) {
    if (request.event != nullptr) {
      reply.body = static_cast<other_thread_event*>(request.event)->text;
      reply.body.append(reinterpret_cast<const char*>(request.body.data()), request.body.size());
      return;
    }
    const auto event = std::make_shared<other_thread_event>();
    event->thread = std::thread([event = event.get()] {
      event->text = "later ";
      event->fire();
    });
    reply.event = event;
  }

  service_gate& gate_;
};

struct client_reply {
  int status = 0;
  std::string head;
  std::string body;
  bool is_whole = false;  ///< false: the connection ended before
};

/// One connection of a client.
class raw_client {
 public:
  explicit raw_client(const endpoint& server) {
    const auto address = first_address(server);
    BOOST_REQUIRE(address.has_value());
    connect(address->bytes.ss_family, address->get(), address->size);
  }
  explicit raw_client(const std::string& path) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::copy(path.begin(), path.end(), address.sun_path);
    connect(AF_UNIX, reinterpret_cast<const sockaddr*>(&address), sizeof address);
  }

  /// True if the server took it all.
  bool send(std::string_view text) {
    while (!text.empty()) {
      const auto sent = ::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      text.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }
  client_reply receive(std::string_view method = "GET") {
    client_reply reply;
    std::size_t end = 0;
    while ((end = received_.find("\r\n\r\n")) == std::string::npos) {
      if (!read_more()) return reply;
    }
    reply.head = received_.substr(0, end + 2);
    received_.erase(0, end + 4);
    reply.status = std::stoi(reply.head.substr(9, 3));
    reply.is_whole = true;
    if (reply.status == 100 || method == "HEAD") return reply;
    if (reply.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      read_chunks(reply);
    } else if (const auto length = reply.head.find("Content-Length: "); length != std::string::npos) {
      const auto size = std::stoul(reply.head.substr(length + 16));
      while (received_.size() < size && read_more()) continue;
      reply.is_whole = received_.size() >= size;
      reply.body = received_.substr(0, size);
      received_.erase(0, size);
    } else {
      while (read_more()) continue;
      reply.body.swap(received_);
    }
    return reply;
  }
  client_reply ask(std::string_view request, std::string_view method = "GET") {
    send(request);
    return receive(method);
  }
  client_reply get(const std::string& target) { return ask("GET " + target + " HTTP/1.1\r\nHost: h\r\n\r\n"); }

  /// Waits until the server has ended the connection.
  bool is_ended() {
    while (read_more()) continue;
    return true;
  }
  [[nodiscard]] int descriptor() const { return socket_.get(); }
  void close() { socket_.reset(); }

 private:
  void connect(int family, const sockaddr* address, socklen_t size) {
    socket_ = unique_fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const timeval limit{30, 0};  // a test that waits longer has failed
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ::setsockopt(socket_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    BOOST_REQUIRE(::connect(socket_.get(), address, size) == 0);
  }
  bool read_more() {
    std::array<char, 65536> bytes;
    const auto got = ::recv(socket_.get(), bytes.data(), bytes.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) BOOST_FAIL("the server keeps silent");
    if (got <= 0) return false;
    received_.append(bytes.data(), static_cast<std::size_t>(got));
    return true;
  }
  void read_chunks(client_reply& reply) {
    reply.is_whole = false;
    while (true) {
      std::size_t end = 0;
      while ((end = received_.find("\r\n")) == std::string::npos) {
        if (!read_more()) return;
      }
      const std::size_t size = std::stoul(received_.substr(0, end), nullptr, 16);
      while (received_.size() < end + 4 + size) {
        if (!read_more()) return;
      }
      reply.body.append(received_, end + 2, size);
      received_.erase(0, end + 4 + size);
      if (size == 0) break;
    }
    reply.is_whole = true;
  }

  unique_fd socket_;
  std::string received_;
};

/// A server with one TCP address, on a free port, and one Unix socket.
struct service_world {
  explicit service_world(request_server_options options = {}) {
    options.addresses = {{"127.0.0.1", 0}};
    path = (std::filesystem::temp_directory_path() / ("cenote-http-" + std::to_string(::getpid()) + ".sock")).string();
    options.sockets = {{path}};
    auto bound = request_server::bind(std::move(options));
    BOOST_REQUIRE_MESSAGE(bound.has_value(), (bound ? "" : bound.error().describe()));
    server = std::move(*bound);
    server->serve([this] { return std::make_unique<echo_handler>(gate); });
  }
  ~service_world() { gate.open(); }

  [[nodiscard]] raw_client connect() const { return raw_client(server->addresses().front()); }
  /// Waits until the figures are as `condition` wants them.
  template <class Condition>
  void await(Condition&& condition) const {
    while (!condition(server->figures())) ::poll(nullptr, 0, 1);
  }

  service_gate gate;
  std::string path;
  std::unique_ptr<request_server> server;
};

}  // namespace cenote::http
