#include "transport/http/server.hpp"

#include <httplib.h>
#include <sys/socket.h>

#include <thread>
#include <utility>

namespace cenote::http {

namespace {

constexpr std::size_t threads = 2;
constexpr time_t patience = 1;  // seconds that a silent client may hold a thread

}  // namespace

struct server::parts {
  httplib::Server http;
  std::thread thread;
};

server::server(endpoint where, std::unique_ptr<parts> made) : where_(std::move(where)), parts_(std::move(made)) {}

server::~server() {
  stop();
}

result<std::unique_ptr<server>> server::bind(const endpoint& where) {
  auto made = std::make_unique<parts>();
  httplib::Server& http = made->http;
  http.new_task_queue = [] { return new httplib::ThreadPool(threads); };
  http.set_keep_alive_max_count(1);
  http.set_keep_alive_timeout(patience);
  http.set_read_timeout(patience);
  http.set_write_timeout(patience);
  http.set_payload_max_length(0);
  // Without SO_REUSEPORT, which would let two nodes share a port unnoticed.
  http.set_socket_options([](socket_t socket) {
    const int yes = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  });
  endpoint bound = where;
  if (where.port == 0) {
    const int port = http.bind_to_any_port(where.host);
    if (port <= 0) return fail_errno("listen", where.text());
    bound.port = static_cast<std::uint16_t>(port);
  } else if (!http.bind_to_port(where.host, where.port)) {
    return fail_errno("listen", where.text());
  }
  return std::unique_ptr<server>(new server(std::move(bound), std::move(made)));
}

void server::serve(const std::map<std::string, maker>& pages) {
  for (const auto& [path, make] : pages) {
    parts_->http.Get(path, [make = make](const httplib::Request&, httplib::Response& answer) {
      const auto made = make();
      if (made) return answer.set_content(made->body, made->type);
      answer.status = 503;
      answer.set_content(made.error().describe() + "\n", "text/plain");
    });
  }
  parts_->thread = std::thread([this] { parts_->http.listen_after_bind(); });
  while (!parts_->http.is_running()) std::this_thread::yield();  // stop() before that would be overheard
}

void server::stop() noexcept {
  if (!parts_->thread.joinable()) return;
  parts_->http.stop();
  parts_->thread.join();
}

}  // namespace cenote::http
