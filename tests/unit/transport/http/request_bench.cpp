// Time of one request on a Unix socket, with bodies of 64 KB; no test.
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "transport/http/request_server.hpp"

namespace {

using namespace cenote;
using namespace cenote::http;

class summing_handler final : public request_handler {
 public:
  void handle(const http_request& request, http_reply& reply) override {
    reply.body = "{\"bytes\":" + std::to_string(request.body.size()) + "}";
  }
};

/// Microseconds of each request; empty if the connection fails.
std::vector<double> measure(const std::string& path, const std::string& request, std::size_t count) {
  const unique_fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::ranges::copy(path, address.sun_path);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return {};
  std::vector<double> times;
  std::array<char, 4096> answer;
  for (std::size_t i = 0; i < count; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    for (std::size_t sent = 0; sent < request.size();) {
      const auto size = ::send(socket.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL);
      if (size <= 0) return {};
      sent += static_cast<std::size_t>(size);
    }
    if (::recv(socket.get(), answer.data(), answer.size(), 0) <= 0) return {};
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - begin;
    times.push_back(time.count());
  }
  std::ranges::sort(times);
  return times;
}

}  // namespace

int main() {
  const std::string path = (std::filesystem::temp_directory_path() / "cenote-http-bench.sock").string();
  request_server_options options;
  options.sockets = {{path}};
  auto server = request_server::bind(std::move(options));
  if (!server) return std::fprintf(stderr, "%s\n", server.error().message().c_str()), 1;
  (*server)->serve([] { return std::make_unique<summing_handler>(); });
  for (const std::size_t size : {0U, 64'000U, 1'000'000U}) {
    const std::string request = "POST /v1/scores HTTP/1.1\r\nHost: h\r\nContent-Length: " + std::to_string(size) +
                                "\r\n\r\n" + std::string(size, 'x');
    const auto times = measure(path, request, size > 100'000 ? 500 : 20'000);
    if (times.empty()) return std::fprintf(stderr, "the connection failed\n"), 1;
    std::printf("%zu bytes: p50 %.1f us, p99 %.1f us\n", size, times[times.size() / 2], times[times.size() * 99 / 100]);
  }
}
