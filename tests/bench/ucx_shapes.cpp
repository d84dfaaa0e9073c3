// How n blocks can travel to who asked for them, by UCX over TCP, beside a blocking socket: pieces that fit a segment,
// whole blocks as active messages, tagged messages.
//   ucx_shapes serve ADDRESS PORT           answers on PORT (UCX) and PORT+1 (socket) until its input ends
//   ucx_shapes run ADDRESS PORT ROUNDS      prints a JSON line a size and shape: medians of alternating rounds
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <ucp/api/ucp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "core/checksum.hpp"

namespace {

constexpr std::size_t arena_bytes = std::size_t{64} << 20;
constexpr std::size_t piece_bytes = std::size_t{768} << 10;
constexpr unsigned request_message = 1, block_message = 2;
constexpr std::size_t window = 8;  // sends under way

enum class shape : std::uint64_t { socket, pieces, whole, tags };
struct request {
  std::uint64_t how, size, count;
};
struct header {
  std::uint64_t offset;  ///< in the arena
};

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "ucx_shapes: %s\n", what);
  std::exit(1);
}
void check(ucs_status_t status, const char* what) {
  if (status != UCS_OK) die(what);
}
double cpu_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto of = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return of(used.ru_utime) + of(used.ru_stime);
}
sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in made{};
  made.sin_family = AF_INET;
  made.sin_port = htons(static_cast<std::uint16_t>(port));
  ::inet_pton(AF_INET, host.c_str(), &made.sin_addr);
  return made;
}

struct side {
  std::vector<char> arena = std::vector<char>(arena_bytes, 'x');
  ucp_context_h context{};
  ucp_worker_h worker{};
  ucp_ep_h other{};
  int events = -1;
  std::size_t arrived = 0, wanted = 0, under_way = 0;
  bool hashes = false;
  std::uint64_t sum = 0;
  std::vector<request> asked;
  std::vector<ucp_conn_request_h> requests;
  std::array<header, 4096> headers{};

  side() {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    check(ucp_init(&params, nullptr, &context), "ucp_init");
    ucp_worker_params_t with{};
    check(ucp_worker_create(context, &with, &worker), "ucp_worker_create");
    check(ucp_worker_get_efd(worker, &events), "ucp_worker_get_efd");
    listen_to(request_message, &request_came);
    listen_to(block_message, &block_came);
  }
  void listen_to(unsigned id, ucp_am_recv_callback_t call) {
    ucp_am_handler_param_t params{};
    params.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG |
                        UCP_AM_HANDLER_PARAM_FIELD_FLAGS;
    params.id = id;
    params.cb = call;
    params.arg = this;
    params.flags = UCP_AM_FLAG_WHOLE_MSG;
    check(ucp_worker_set_am_recv_handler(worker, &params), "ucp_worker_set_am_recv_handler");
  }
  void connect(ucp_ep_params_t params) {
    params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    params.err_handler = {[](void*, ucp_ep_h, ucs_status_t) { std::_Exit(0); }, nullptr};
    check(ucp_ep_create(worker, &params, &other), "ucp_ep_create");
  }
  template <class Condition>
  void until(Condition is_so) {
    while (!is_so()) {
      if (ucp_worker_progress(worker) != 0) continue;
      if (ucp_worker_arm(worker) != UCS_OK) continue;
      pollfd wait{events, POLLIN, 0};
      ::poll(&wait, 1, 1000);
    }
  }
  static ucs_status_t request_came(void* self, const void*, std::size_t, void* data, std::size_t,
                                   const ucp_am_recv_param_t*) {
    request what{};
    std::memcpy(&what, data, sizeof what);
    static_cast<side*>(self)->asked.push_back(what);
    return UCS_OK;
  }
  static ucs_status_t block_came(void* of, const void* head, std::size_t, void* data, std::size_t bytes,
                                 const ucp_am_recv_param_t*) {
    auto& self = *static_cast<side*>(of);
    header where{};
    std::memcpy(&where, head, sizeof where);
    std::memcpy(self.arena.data() + where.offset, data, bytes);
    self.landed(self.arena.data() + where.offset, bytes);
    return UCS_OK;
  }
  void landed(const char* at, std::size_t bytes) {
    if (hashes) sum += cenote::checksum_of(at, bytes);
    arrived += bytes;
  }
  void count(ucs_status_ptr_t started) {
    if (UCS_PTR_IS_ERR(started)) die("a send failed");
    if (started != nullptr) ++under_way;
  }
  static void sent(void* operation, ucs_status_t, void* of) {
    --static_cast<side*>(of)->under_way;
    ucp_request_free(operation);
  }
  void answer(const request& what) {
    ucp_request_param_t params{};
    params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
    params.cb.send = &sent;
    params.user_data = this;
    params.flags = UCP_AM_SEND_FLAG_EAGER;
    const std::size_t most = static_cast<shape>(what.how) == shape::pieces ? piece_bytes : what.size;
    std::size_t used = 0;
    for (std::size_t block = 0; block < what.count; ++block) {
      for (std::size_t at = 0; at < what.size; at += most) {
        until([&] { return under_way < window; });
        const std::size_t offset = block * what.size + at;
        const std::size_t bytes = std::min(most, what.size - at);
        if (static_cast<shape>(what.how) == shape::tags) {
          ucp_request_param_t tagged = params;
          tagged.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
          count(ucp_tag_send_nbx(other, arena.data() + offset, bytes, block, &tagged));
        } else {
          header& head = headers.at(used++ % headers.size());
          head.offset = offset;
          count(ucp_am_send_nbx(other, block_message, &head, sizeof head, arena.data() + offset, bytes, &params));
        }
      }
    }
  }
  void fetch(shape how, std::size_t size) {
    const request what{static_cast<std::uint64_t>(how), size, arena_bytes / size};
    arrived = 0;
    wanted = arena_bytes;
    if (how == shape::tags) post_receives(what);
    ucp_request_param_t params{};
    const ucs_status_ptr_t started = ucp_am_send_nbx(other, request_message, nullptr, 0, &what, sizeof what, &params);
    until([&] { return arrived >= wanted; });
    if (started != nullptr && !UCS_PTR_IS_ERR(started)) ucp_request_free(started);
  }
  void post_receives(const request& what) {
    for (std::size_t block = 0; block < what.count; ++block) {
      ucp_request_param_t params{};
      params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
      params.user_data = this;
      params.cb.recv = [](void* operation, ucs_status_t, const ucp_tag_recv_info_t* info, void* of) {
        auto& self = *static_cast<side*>(of);
        self.landed(self.arena.data() + info->sender_tag * info->length, info->length);
        ucp_request_free(operation);
      };
      if (UCS_PTR_IS_ERR(ucp_tag_recv_nbx(worker, arena.data() + block * what.size, what.size, block, ~0ULL, &params)))
        die("ucp_tag_recv_nbx");
    }
  }
};

bool send_all(int socket, const char* at, std::size_t bytes) {
  for (ssize_t n = 0; bytes > 0; at += n, bytes -= static_cast<std::size_t>(n)) {
    if ((n = ::send(socket, at, bytes, MSG_NOSIGNAL)) <= 0) return false;
  }
  return true;
}
bool receive_all(int socket, char* at, std::size_t bytes) {
  for (ssize_t n = 0; bytes > 0; at += n, bytes -= static_cast<std::size_t>(n)) {
    if ((n = ::recv(socket, at, bytes, 0)) <= 0) return false;
  }
  return true;
}

/// Also says how much processor time this process took, when it is asked for no blocks.
void serve_socket(sockaddr_in where, std::vector<char>& arena) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(listener, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0 || ::listen(listener, 1) != 0)
    die("bind");
  const int socket = ::accept(listener, nullptr, nullptr);
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  request what{};
  while (receive_all(socket, reinterpret_cast<char*>(&what), sizeof what)) {
    const double cpu = cpu_seconds();
    if (what.count == 0 && !send_all(socket, reinterpret_cast<const char*>(&cpu), sizeof cpu)) return;
    for (std::size_t i = 0; i < what.count; ++i) {
      if (!send_all(socket, arena.data() + i * what.size, what.size)) return;
    }
  }
}

int serve(const std::string& host, int port) {
  static side self;
  ucp_listener_params_t params{};
  const sockaddr_in where = address_of(host, port);
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&where), sizeof where};
  params.conn_handler = {[](ucp_conn_request_h asked, void*) { self.requests.push_back(asked); }, nullptr};
  ucp_listener_h listener{};
  check(ucp_listener_create(self.worker, &params, &listener), "ucp_listener_create");
  std::thread([host, port] { serve_socket(address_of(host, port + 1), self.arena); }).detach();
  std::puts("ready");
  std::fflush(stdout);
  self.until([&] { return !self.requests.empty(); });
  ucp_ep_params_t accept{};
  accept.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
  accept.conn_request = self.requests.front();
  self.connect(accept);
  while (true) {
    self.until([&] { return !self.asked.empty(); });
    const request what = self.asked.front();
    self.asked.erase(self.asked.begin());
    self.answer(what);
  }
}

struct figures {
  std::vector<double> speed, cpu;
};
double median(std::vector<double> of) {
  std::ranges::sort(of);
  return of[of.size() / 2];
}

int run(const std::string& host, int port, int rounds) {
  static side self;
  const sockaddr_in where = address_of(host, port);
  ucp_ep_params_t params{};
  params.field_mask = UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  params.sockaddr = {reinterpret_cast<const sockaddr*>(&where), sizeof where};
  self.connect(params);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const int on = 1;
  const sockaddr_in beside = address_of(host, port + 1);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&beside), sizeof beside) != 0) die("connect");
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  const auto cpu_of_both = [&] {
    const request what{0, 0, 0};
    double theirs = 0;
    send_all(socket, reinterpret_cast<const char*>(&what), sizeof what);
    receive_all(socket, reinterpret_cast<char*>(&theirs), sizeof theirs);
    return cpu_seconds() + theirs;
  };
  const auto by_socket = [&](std::size_t size) {
    const request what{0, size, arena_bytes / size};
    send_all(socket, reinterpret_cast<const char*>(&what), sizeof what);
    for (std::size_t i = 0; i < what.count; ++i) {
      receive_all(socket, self.arena.data() + i * size, size);
      if (self.hashes) self.sum += cenote::checksum_of(self.arena.data() + i * size, size);
    }
  };
  const std::map<shape, const char*> names{
      {shape::socket, "socket"}, {shape::pieces, "pieces"}, {shape::whole, "whole"}, {shape::tags, "tags"}};
  for (const std::size_t kib : {64U, 512U, 2048U, 8192U}) {
    std::map<std::pair<shape, bool>, figures> all;
    for (int round = 0; round <= rounds; ++round) {
      for (const bool hashes : {false, true}) {
        for (const auto& [how, name] : names) {
          self.hashes = hashes;
          const double cpu = cpu_of_both();
          const auto begun = std::chrono::steady_clock::now();
          for (int i = 0; i < 4; ++i) {
            if (how == shape::socket) {
              by_socket(kib << 10U);
            } else {
              self.fetch(how, kib << 10U);
            }
          }
          const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
          if (round == 0) continue;  // warms up
          all[{how, hashes}].speed.push_back(0.25 / seconds);
          all[{how, hashes}].cpu.push_back((cpu_of_both() - cpu) / 0.25);
        }
      }
    }
    for (auto& [what, of] : all) {
      std::printf("{\"kib\":%zu,\"shape\":\"%s\",\"checksum\":%s,\"gib_s\":%.3f,\"cpu_s_gib\":%.3f}\n", kib,
                  names.at(what.first), what.second ? "true" : "false", median(of.speed), median(of.cpu));
      std::fflush(stdout);
    }
  }
  std::_Exit(0);
}

}  // namespace

int main(int count, char** words) {
  const std::vector<std::string> arguments(words + 1, words + count);
  if (arguments.size() == 3 && arguments[0] == "serve") return serve(arguments[1], std::atoi(arguments[2].c_str()));
  if (arguments.size() == 4 && arguments[0] == "run")
    return run(arguments[1], std::atoi(arguments[2].c_str()), std::atoi(arguments[3].c_str()));
  die("serve ADDRESS PORT, or run ADDRESS PORT ROUNDS");
}
