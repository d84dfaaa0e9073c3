#include "commands/bench/peer_ends.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstring>
#include <ctime>
#include <sstream>
#include <thread>
#include <utility>

#include "actors/ask.hpp"
#include "actors/cluster_report.hpp"
#include "commands/bench/support.hpp"
#include "core/checksum.hpp"
#include "core/socket_address.hpp"

namespace cenote::bench {

namespace {

using namespace std::chrono_literals;

const peer::ticket shared_ticket{};

block_request request_in(std::span<const std::byte> frame) {
  block_request what;
  if (frame.size() >= sizeof what) std::memcpy(&what, frame.data(), sizeof what);
  return what;
}

void set_no_delay(int socket) {
  const int on = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

/// Answers requests on one connection until it ends.
void serve_socket(const unique_fd& listener, std::byte* arena) {
  const unique_fd socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!socket) return;
  set_no_delay(socket.get());
  std::array<std::byte, ping_bytes> asked{};
  while (receive_all(socket.get(), asked.data(), asked.size())) {
    const block_request what = request_in(asked);
    if (what.count == 0 && !send_all(socket.get(), asked.data(), asked.size())) return;
    for (std::uint64_t i = 0; i < what.count; ++i) {
      if (!send_all(socket.get(), arena + i * what.size, what.size)) return;
    }
  }
}

unique_fd listen_at(const std::string& host, std::uint16_t& port) {
  const auto where = first_address({host, 0});
  unique_fd made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  socklen_t size = sizeof address;
  if (!where || !made || ::bind(made.get(), where->get(), where->size) != 0 || ::listen(made.get(), 1) != 0 ||
      ::getsockname(made.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return {};
  port = ntohs(address.sin_port);
  return made;
}

/// Everything that the bench talks to, until the pipe ends.
result<void> serve(const peer_path& way, const unique_fd& out, const unique_fd& in) {
  char byte = 0;
  if (auto left = way.leave_namespace(); !left) return left;
  if (::write(out.get(), &byte, 1) != 1 || ::read(in.get(), &byte, 1) != 1) return fail_errno("the bench's pipe");
  if (auto taken = way.take_address(); !taken) return taken;
  memory_pieces arena(1, arena_bytes);
  places here;
  const unique_fd listener = listen_at(way.there, here.socket);
  if (!listener) return fail_errno("listening at " + way.there);
  auto network = peer_side::start(way.there, arena.piece(0));
  if (!network) return std::unexpected(network.error());
  peer_member cluster;
  if (auto joined = cluster.join("there", way.there, way.secret_file, {}); !joined) return joined;
  std::jthread socket_side([&] { serve_socket(listener, arena.piece(0)); });
  const std::string line = fmt::format("{} {} {} {}\n", here.socket, (*network)->network->where().text(),
                                       (*network)->network->blocks_at().text(), cluster.host->where().text());
  (void)!::write(out.get(), line.data(), line.size());
  while (::read(in.get(), &byte, 1) > 0) {
  }
  ::_exit(0);
}

}  // namespace

std::vector<std::byte> request_frame(const block_request& what) {
  std::vector<std::byte> frame(ping_bytes);
  std::memcpy(frame.data(), &what, sizeof what);
  return frame;
}

bool send_all(int socket, const void* from, std::size_t bytes) {
  const auto* at = static_cast<const char*>(from);
  while (bytes > 0) {
    const ssize_t sent = ::send(socket, at, bytes, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, void* into, std::size_t bytes) {
  auto* at = static_cast<char*>(into);
  while (bytes > 0) {
    const ssize_t got = ::recv(socket, at, bytes, 0);
    if (got <= 0) return false;
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return true;
}

// ---- a network

result<std::unique_ptr<peer_side>> peer_side::start(const std::string& host, std::byte* arena) {
  std::unique_ptr<peer_side> made(new peer_side(arena));
  const endpoint here{host, 0};
  auto variables = ucx::environment_of(here, {}, {});
  if (!variables) return std::unexpected(variables.error());
  auto network = ucx::start_network({.listen = here, .variables = std::move(*variables)}, made->events());
  if (!network) return std::unexpected(network.error());
  made->network = std::move(*network);
  return made;
}

result<void> peer_side::join(const endpoint& where, const endpoint& blocks_at) {
  link_ = network->dial(where);
  network->join_blocks(link_, blocks_at, shared_ticket);
  return wait([this] { return carries_; });
}

result<void> peer_side::fetch(const block_request& what, bool with_hash) {
  {
    const std::lock_guard lock(mutex_);
    wanted_ = what.size * what.count;
    landed_ = 0;
    hashes_ = with_hash;
  }
  network->send(link_, request_frame(what));
  return wait([this] { return landed_ >= wanted_; });
}

result<void> peer_side::ping(std::uint64_t count) {
  {
    const std::lock_guard lock(mutex_);
    echoed_ = false;
  }
  pings_left_ = count;
  network->send(link_, request_frame({}));
  return wait([this] { return echoed_; });
}

peer::network_events peer_side::events() {
  peer::network_events all;
  all.opened = [this](peer::link_id which, bool is_dialled, const endpoint&) {
    if (!is_dialled) network->await_blocks(which, shared_ticket);
  };
  all.closed = [this](peer::link_id, const error&) { change([this] { is_lost_ = true; }); };
  all.heard = [this](peer::link_id from, std::span<const std::byte> frame) { hear(from, frame); };
  all.carries_blocks = [this](peer::link_id) { change([this] { carries_ = true; }); };
  all.expects = [this](peer::link_id, const peer::piece_header& head, std::size_t bytes) {
    return std::span(arena_ + head.token * head.total + head.offset, bytes);
  };
  all.landed = [this](peer::link_id, const peer::piece_header&, std::span<const std::byte> piece) {
    if (hashes_) sum_ = sum_ + checksum_of(piece);
    landed_ += piece.size();
    if (landed_ >= wanted_) change([] {});
  };
  all.sent = [](peer::link_id, std::uint64_t, const result<void>&) {};
  return all;
}

void peer_side::hear(peer::link_id from, std::span<const std::byte> frame) {
  const block_request what = request_in(frame);
  if (from == link_ && --pings_left_ > 0) return network->send(from, request_frame({}));
  if (from == link_) return change([this] { echoed_ = true; });
  if (what.count == 0) network->send(from, {frame.begin(), frame.end()});
  for (std::uint64_t i = 0; i < what.count; ++i)
    network->send_block(from, {.token = i}, std::span(arena_ + i * what.size, what.size));
}

// ---- a cluster

peer_member::system_config::system_config() {
  add_message_types<caf::id_block::cenote>();
  add_cluster_messages(*this);
  set("scheduler.policy", caf::atom("sharing"));
  set("scheduler.max-threads", 2U);
  set("logger.verbosity", caf::atom("quiet"));
}

result<void> peer_member::join(const std::string& name, const std::string& address, const std::string& secret_file,
                               const std::vector<std::string>& seeds) {
  config::cluster_section config;
  config.name = name;
  config.id = "bench";
  config.listen = endpoint{address, 0};
  config.seeds = seeds;
  config.secret_file = secret_file;
  config.trusted_network = true;  // it is the bench's own
  config.beat = 200ms;
  config.suspect_after = suspect_after;
  config.gone_after = 4s;
  auto made = cluster_host::start({.system = system,
                                   .config = config,
                                   .born = peer::incarnation::of(static_cast<std::uint64_t>(::getpid()), 1),
                                   .weight = 1,
                                   .fatal = [](const std::string&) {}});
  if (!made) return std::unexpected(made.error());
  host = std::move(*made);
  return {};
}

std::string peer_member::state_of_other() {
  const auto report = ask<tier_report_ptr>(system, 2s, host->actor(), report_atom_v);
  const auto* const found = report ? dynamic_cast<const cluster_report*>(report->get()) : nullptr;
  for (const peer_report& each : found == nullptr ? std::vector<peer_report>() : found->peers) {
    if (each.name == "there") return each.state;
  }
  return {};
}

peer_member::~peer_member() {
  if (host) host->stop();
  system.await_all_actors_done();
}

// ---- the other process

result<other_process> other_process::start(const peer_path& way) {
  std::array<int, 2> to{}, from{};
  if (::pipe2(to.data(), O_CLOEXEC) != 0 || ::pipe2(from.data(), O_CLOEXEC) != 0) return fail_errno("pipe2");
  unique_fd to_read(to[0]), to_write(to[1]), from_read(from[0]), from_write(from[1]);
  const pid_t child = ::fork();
  if (child < 0) return fail_errno("fork");
  if (child == 0) {
    to_write.reset();
    const auto served = serve(way, from_write, to_read);
    fmt::print(stderr, "cenote bench peer: {}\n", served ? "" : served.error().describe());
    ::_exit(1);
  }
  other_process made(child, std::move(to_write));
  from_write.reset();
  char ready = 0;
  if (::read(from_read.get(), &ready, 1) != 1)
    return fail(error_code::unsupported, "the other process ended: see above");
  if (auto connected = way.connect_with(child); !connected) return std::unexpected(connected.error());
  (void)!::write(made.end_.get(), &ready, 1);
  if (auto read = made.read_places(from_read); !read) return std::unexpected(read.error());
  return made;
}

void other_process::send_signal(int which) const {
  ::kill(pid_, which);
}

void other_process::kill(int with) {
  ::kill(pid_, with);
  ::waitpid(std::exchange(pid_, -1), nullptr, 0);
}

double other_process::cpu_seconds() const {
  clockid_t theirs = 0;
  const bool is_there = ::clock_getcpuclockid(pid_, &theirs) == 0;
  return bench::cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) + (is_there ? bench::cpu_seconds(theirs) : 0);
}

result<void> other_process::read_places(const unique_fd& from) {
  std::string line;
  for (char each = 0; ::read(from.get(), &each, 1) == 1 && each != '\n';) line += each;
  std::istringstream words(line);
  std::string where, blocks_at, cluster;
  if (!(words >> at.socket >> where >> blocks_at >> cluster))
    return fail(error_code::unsupported, "the other process ended: see above");
  at.where = *parse_endpoint(where);
  at.blocks_at = *parse_endpoint(blocks_at);
  at.cluster = *parse_endpoint(cluster);
  return {};
}

result<unique_fd> connect_to(const std::string& host, std::uint16_t port) {
  const auto address = first_address({host, port});
  if (!address) return std::unexpected(address.error());
  unique_fd made(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!made || ::connect(made.get(), address->get(), address->size) != 0) return fail_errno("connect");
  set_no_delay(made.get());
  return made;
}

}  // namespace cenote::bench
