#include "transport/redis/waiting_client.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "transport/redis/command_text.hpp"
#include "transport/redis/reply_errors.hpp"
#include "transport/redis/server_connection_code.hpp"

namespace cenote::redis {

template class server_connection<piped_command>;

namespace {

constexpr std::int64_t stop_look_ms = 100;

/// Waits for events of a descriptor, until the deadline or a stop. 0: none came.
short wait_for(int descriptor, short mask, steady_time deadline, const std::stop_token& stop) {
  const std::int64_t longest = stop.stop_possible() ? stop_look_ms : 60'000;
  for (;;) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - present_time());
    if (left.count() <= 0 || stop.stop_requested()) return 0;
    pollfd polled{.fd = descriptor, .events = mask, .revents = 0};
    const int ready = ::poll(&polled, 1, static_cast<int>(std::min(left.count(), longest)));
    if (ready > 0) return polled.revents;
    if (ready < 0 && errno != EINTR) return 0;
  }
}

std::unexpected<error> too_late(std::string_view stage) {
  return fail(error_code::deadline_exceeded, std::string(stage) + " in time");
}

}  // namespace

waiting_client::waiting_client(server_access access, waiting_options options, unique_fd wake)
    : access_(std::move(access)), options_(std::move(options)), wake_(std::make_shared<unique_fd>(std::move(wake))) {
  names_ = std::make_unique<resolver>(access_.address.place, [bell = wake_] {
    const std::uint64_t one = 1;
    (void)!::write(bell->get(), &one, sizeof(one));
  });
}

result<waiting_client> waiting_client::make(server_access access, waiting_options options) {
  unique_fd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return fail_errno("eventfd");
  return waiting_client(std::move(access), std::move(options), std::move(wake));
}

void waiting_client::close() {
  if (connection_) (void)connection_->close();
  connection_.reset();
  is_greeted_ = false;
}

result<void> waiting_client::run(std::span<const std::string> commands, steady_time deadline,
                                 const reply_receiver& receiver) {
  if (!is_greeted_) {
    if (auto opened = open(deadline); !opened) {
      close();
      return std::unexpected(opened.error().in(access_.address.text()));
    }
  }
  auto done = exchange(commands, deadline, receiver);
  if (done) return done;
  close();
  return std::unexpected(done.error().in(access_.address.text()));
}

result<void> waiting_client::open(steady_time deadline) {
  const auto to = addresses(deadline);
  if (!to) return std::unexpected(to.error());
  auto secured = make_stream(access_.tls, access_.address.place.host);
  if (!secured) return std::unexpected(secured.error());
  connection_ = std::make_unique<server_connection<piped_command>>();
  if (auto begun = connection_->begin(*to, attempts_++, std::move(*secured)); !begun) return begun;
  while (!connection_->is_connected()) {
    const short events = wait_for(connection_->descriptor(), connection_->wanted_events(), deadline, options_.stop);
    if (events == 0) return too_late(connection_->is_in_handshake() ? no_handshake : "no connection");
    if (auto served = connection_->serve(events, present_time(), {}); !served) return served;
  }
  if (auto greeted = greet(deadline); !greeted) return greeted;
  is_greeted_ = true;
  ++connections_;
  return {};
}

result<socket_addresses> waiting_client::addresses(steady_time deadline) {
  if (auto fixed = fixed_addresses(access_.address)) return std::move(*fixed);
  if (auto asked = names_->ask(); !asked) return std::unexpected(asked.error());
  for (;;) {
    if (auto answer = names_->take()) return std::move(*answer);
    if (wait_for(wake_->get(), POLLIN, deadline, options_.stop) == 0) return too_late("its name is not looked up");
    std::uint64_t rings = 0;
    (void)!::read(wake_->get(), &rings, sizeof(rings));
  }
}

result<void> waiting_client::greet(steady_time deadline) {
  std::vector<std::string> commands;
  if (!access_.credentials.empty()) {
    const auto own = read_credentials(access_.credentials, access_.user);
    if (!own) return std::unexpected(own.error());
    commands.push_back(own->user.empty() ? wire_command({"AUTH", own->password})
                                         : wire_command({"AUTH", own->user, own->password}));
  }
  if (access_.database != 0) commands.push_back(wire_command({"SELECT", std::to_string(access_.database)}));
  commands.push_back(wire_command({"PING"}));
  std::optional<error> refusal;
  auto done = exchange(commands, deadline, [&](std::size_t, const server_reply& reply) {
    if (reply.kind == server_reply::type::failure && !refusal) {
      refusal = error(error_code::system, explained(reply.text));
    }
  });
  if (done && refusal) return std::unexpected(*refusal);
  return done;
}

result<void> waiting_client::exchange(std::span<const std::string> commands, steady_time deadline,
                                      const reply_receiver& receiver) {
  for (std::size_t i = 0; i < commands.size(); ++i)
    connection_->send({.head = commands[i], .index = i, .most_reply_bytes = options_.most_reply_bytes});
  connection_->flush(present_time());
  const auto pass_on = [&](piped_command& command, const server_reply& reply) { receiver(command.index, reply); };
  while (!connection_->is_idle()) {
    const short events = wait_for(connection_->descriptor(), connection_->wanted_events(), deadline, options_.stop);
    if (events == 0) return too_late("no reply");
    if (auto served = connection_->serve(events, present_time(), pass_on); !served) return served;
  }
  return {};
}

}  // namespace cenote::redis
