#include "worker/server.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include "config/logging.hpp"
#include "core/shared_bound.hpp"
#include "worker/access.hpp"
#include "worker/live_page.hpp"
#include "worker/metrics_text.hpp"
#include "worker/status_json.hpp"

namespace cenote {

namespace {

constexpr auto report_deadline = std::chrono::seconds(7);  // of threads that wait for one
constexpr auto unread_limit = std::chrono::seconds(10);    // a client that does not read its answer is cut off
constexpr auto silence_limit = std::chrono::seconds(60);   // a connection without a session is closed after that
constexpr auto tick_interval = std::chrono::seconds(1);
constexpr auto look_again_interval = std::chrono::milliseconds(20);
constexpr int accepts_a_turn = 16;
constexpr std::size_t refused_connections = 32;   // of a user, that wait to be told why
constexpr std::size_t operator_connections = 16;  // beyond the limit, for those who may administrate
constexpr std::size_t attach_descriptors = 5;
constexpr auto turn_away_pause = std::chrono::milliseconds(10);  // between attempts that cannot even refuse

/// A descriptor to give up when there are no others.
unique_fd open_spare() {
  return unique_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

/// How many files the daemon may have open.
std::size_t open_files() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

/// How many descriptors may be unread by one user's clients: far below what the kernel refuses the daemon, so that
/// several such users cannot block the others.
std::size_t descriptors_a_user(std::uint32_t configured) {
  return std::clamp<std::size_t>(std::min<std::size_t>(configured, open_files() / 8), local::max_frame_fds, 1U << 16);
}

}  // namespace

server::server(server_context context, config_ptr config) : context_(std::move(context)), config_(std::move(config)) {}

result<std::unique_ptr<server>> server::start(server_context context, config_ptr config) {
  std::unique_ptr<server> made(new server(std::move(context), std::move(config)));
  const auto failed = [to = made.get()](local::event_loop::watch_id id, const std::string& what) {
    ++*to->context_.exceptions;
    to->handler_failed(id, what);
  };
  auto sockets = local::event_loop::start("cenote-sockets", failed);
  if (!sockets) return std::unexpected(sockets.error());
  made->sockets_ = std::shared_ptr<local::event_loop>(std::move(*sockets));
  made->make_parts();
  return made;
}

void server::make_parts() {
  next_look_ = std::make_unique<local::alarm>(sockets_, [this] { look_again(); });
  next_tick_ = std::make_unique<local::alarm>(sockets_, [this] { tick(); });
  reports_ = std::make_unique<shared_reports>(context_.system, context_.node, sockets_);
  sessions_ = std::make_unique<attachments>(
      context_, config_, sockets_,
      attachments::connection_hooks{
          .ended = [this](int socket) { forget_session(socket); },
          .replaced =
              [this](int socket) {
                forget_session(socket);
                close(socket);
              },
          .answer = [this](const asker& to, const auto& send) { answer_deferred(to, send); }});
  commands_ = std::make_unique<operator_commands>(context_, config_, sockets_, *reports_, *sessions_,
                                                  [this](const report_ptr& report) { return facts_of(report); });
}

server::~server() {
  stop();
}

void server::watch_over(pulse& all) {
  all.add("the thread of sockets", [this](std::function<void()> answer) { sockets_->post(std::move(answer)); });
  all.add("the thread of the data path",
          [this](std::function<void()> answer) { context_.path.post(std::move(answer)); });
}

void server::stop() {
  if (sockets_) sockets_->stop();
}

template <class Make>
auto server::answer_from_report(Make make) -> result<std::invoke_result_t<Make, const report_ptr&>> {
  using answer_result = result<std::invoke_result_t<Make, const report_ptr&>>;
  auto asked = std::make_shared<std::promise<answer_result>>();
  auto answer = asked->get_future();
  sockets_->post([this, asked, make] {
    reports_->want([asked, make](const result<report_ptr>& report) {
      asked->set_value(report ? answer_result(make(*report)) : std::unexpected(report.error()));
    });
  });
  if (answer.wait_for(report_deadline) == std::future_status::ready) return answer.get();
  return fail(error_code::deadline_exceeded, "the node is too busy to answer");
}

result<node_facts> server::facts() {
  return answer_from_report([this](const report_ptr& report) { return facts_of(report); });
}

result<std::string> server::status() {
  const auto found = facts();
  if (!found) return std::unexpected(found.error());
  return status_json(*found, status_reader::stranger());
}

result<std::string> server::metrics() {
  const auto found = facts();
  if (!found) return std::unexpected(found.error());
  return metrics_text(*found);
}

result<std::string> server::page() {
  const auto found = answer_from_report([this](const report_ptr& report) {
    return std::pair(facts_of(report), hits_.spans(report->dram.instances, hit_history::clock::now()));
  });
  if (!found) return std::unexpected(found.error());
  return live_page(found->first, found->second, hit_history::clock::now());
}

void server::on_loop(const std::function<void()>& work) const {
  std::promise<void> done;
  sockets_->post([&] {
    try {
      work();
      done.set_value();
    } catch (...) {
      done.set_exception(std::current_exception());
    }
  });
  done.get_future().get();
}

// ---------------------------------------------------------------------------------------------- life

void server::adopt(const std::shared_ptr<session_resources>& session) {
  on_loop([&] { sessions_->adopt(session); });
}

void server::expect(tier_number tier, const std::vector<std::uint64_t>& sessions) {
  on_loop([&] { sessions_->expect(tier, sessions); });
}

std::function<void(device_news, std::vector<std::shared_ptr<session_resources>>, std::vector<std::uint64_t>)>
server::device_teller() {
  return
      [this, loop = std::weak_ptr(sockets_)](device_news news, std::vector<std::shared_ptr<session_resources>> sessions,
                                             std::vector<std::uint64_t> suspects) {
        const auto still = loop.lock();
        if (!still) return;
        still->post([this, news = std::move(news), sessions = std::move(sessions), suspects = std::move(suspects)] {
          sessions_->take_device(news);
          for (const auto& each : sessions) sessions_->adopt(each);
          for (const std::uint64_t each : suspects) sessions_->end_suspect(each);
        });
      };
}

void server::end_suspect(std::uint64_t number) {
  on_loop([&] { sessions_->end_suspect(number); });
}

result<void> server::serve(unique_fd listener) {
  result<void> served;
  on_loop([&] {
    if (listener_) {
      sockets_->unwatch(accepting_);
      while (auto waiting = local::accept_one(listener_.get())) {  // what has come by the old one
        if (!*waiting) break;
        welcome(std::move(**waiting));
      }
    }
    listener_ = std::move(listener);
    if (!spare_) spare_ = open_spare();
    auto watch = sockets_->watch(listener_.get(), [this](std::uint32_t) { accept_some(); });
    if (!watch) {
      served = std::unexpected(watch.error());
      return;
    }
    accepting_ = *watch;
    next_tick_->set(clock::now() + tick_interval);
  });
  return served;
}

void server::reload(config_ptr config) {
  config_.replace(std::move(config));
}

void server::drain(bool keeper_is_dead) {
  on_loop([&] {  // waited for: stop() drops what did not run yet
    if (keeper_is_dead) {
      sockets_->unwatch(accepting_);
      ::shutdown(listener_.get(), SHUT_RDWR);
    }
    // The end of the keeper is the end of this node. A caller may ask again: it meets the next node, or none.
    farewell_ = keeper_is_dead ? error(error_code::node_restarting, "the node was killed, and its worker ends")
                               : error(error_code::not_running, "the node is shutting down");
    sessions_->drain(*farewell_);
  });
}

void server::accept_some() {
  for (int n = 0; n < accepts_a_turn; ++n) {
    auto accepted = local::accept_one(listener_.get());
    if (!accepted) return turn_away(accepted.error());
    if (!*accepted) return;
    turning_away_ = false;
    welcome(std::move(**accepted));
  }
}

void server::welcome(unique_fd accepted) {
  const int socket = accepted.get();
  auto peer = local::credentials_of(socket);
  connection made{std::move(accepted), peer.value_or(local::peer_credentials{}), local::outbox(socket)};
  // Told in answer to its first request: a frame sent before a close is lost if the request is not read.
  made.refused = peer ? reason_to_refuse(made) : peer.error();
  if (farewell_) made.refused = farewell_;
  if (made.refused) {
    ++counters_.turned_away;
    const auto waiting = std::ranges::count_if(
        connections_, [&](const auto& each) { return each.second.refused && each.second.peer.uid == made.peer.uid; });
    if (std::cmp_greater_equal(waiting, refused_connections)) return;
  }
  auto watch = sockets_->watch(socket, [this, socket](std::uint32_t events) { on_event(socket, events); });
  if (!watch) return;
  made.watch = *watch;
  connections_.emplace(socket, std::move(made));
}

std::size_t server::connections_of(uid_t uid) const {
  return static_cast<std::size_t>(
      std::ranges::count_if(connections_,
                            [&](const auto& each) { return each.second.peer.uid == uid && !each.second.refused; }) +
      std::ranges::count(partings_, uid, &parting::uid));
}

std::size_t server::all_connections() const {
  return static_cast<std::size_t>(
             std::ranges::count_if(connections_, [](const auto& each) { return !each.second.refused; })) +
         partings_.size();
}

std::optional<error> server::reason_to_refuse(const connection& connection) const {
  const std::string who = "uid " + std::to_string(connection.peer.uid);
  const config_ptr now = config_.get();
  const bool is_operator = may_administrate(connection, *now);
  if (!is_operator && !may_attach(connection, *now)) return may_not_attach(connection.peer.uid);
  const std::size_t most = now->limits.connections_per_uid + (is_operator ? operator_connections : 0);
  const std::size_t own = connections_of(connection.peer.uid);
  if (own >= most) {
    return error(error_code::limit_exceeded,
                 who + " has " + std::to_string(most) + " connections, limits.connections_per_uid allows no more");
  }
  const std::size_t room = open_files() / 2;  // the rest is for what sessions and instances need
  if (is_operator) return std::nullopt;
  return share_refusal(node_bound::connections, room, {.all = all_connections(), .user = own, .group = 0},
                       {.uid = static_cast<std::uint32_t>(connection.peer.uid)});
}

/// Out of descriptors, as a rule. Whoever waits is told so with the help of the spare one: left alone, the listening
/// socket would stay readable and keep this thread busy. When another thread took the spare one, a connection that
/// nobody uses gives its own.
void server::turn_away(const error& why) {
  if (!std::exchange(turning_away_, true)) {
    log_warn(logger("server"), "clients are turned away; raise the limit of open files", {{"reason", why.describe()}});
  }
  const error reason(error_code::limit_exceeded, "the node is out of file descriptors: " + why.message());
  spare_.reset();
  if (const auto waiting = local::accept_one(listener_.get()); waiting && *waiting) {
    ++counters_.turned_away;
    (void)local::try_send_frame((*waiting)->get(), {.type = local::frame_type::failure}, local::encode_failure(reason),
                                {});
  } else {
    if (!waiting) close_most_silent(reason);
    std::this_thread::sleep_for(turn_away_pause);
  }
  spare_ = open_spare();
}

void server::close_most_silent(const error& why) {
  const auto may_go = [](connection& each) { return each.is_unused() && each.out.descriptors() == 0; };
  const auto heard = [&](auto& each) { return may_go(each.second) ? each.second.heard : clock::time_point::max(); };
  const auto found = std::ranges::min_element(connections_, {}, heard);
  if (found == connections_.end() || !may_go(found->second)) return;
  (void)found->second.out.send({.type = local::frame_type::failure}, local::encode_failure(why), {});
  close(found->first);
}

void server::on_event(int socket, std::uint32_t events) {
  const auto found = connections_.find(socket);
  if (found == connections_.end()) return;
  connection& from = found->second;
  if ((events & EPOLLERR) != 0 && from.attach_unread) {
    // Its peer left with something unread, and that can only be the attach reply.
    sessions_->end(from.session, "its client left before it was attached");
  }
  if ((events & EPOLLOUT) != 0) {
    if (!from.out.flush()) return close(socket);
    set_interest(from);
  }
  if (from.reads && (events & EPOLLIN) != 0) return read_one(from);
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) close(socket);
}

/// One frame: the others that are ready have their turn before the next one.
void server::read_one(connection& connection) {
  const int socket = connection.socket.get();
  if (connection.refused) return tell_refused(connection);
  auto received = local::try_receive_frame(socket);
  if (received && !*received) return;
  if (received) return handle(connection, std::move(**received));
  if (received.error().code() != error_code::closed) {
    (void)connection.out.send({.type = local::frame_type::failure}, local::encode_failure(received.error()));
  }
  close(socket);
}

/// Nothing of what it sent is looked at but the number of the request; descriptors that came along are closed unseen.
void server::tell_refused(connection& connection) {
  local::frame_header request;
  std::array<std::byte, sizeof request> start{};
  const ssize_t got = ::recv(connection.socket.get(), start.data(), start.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got >= static_cast<ssize_t>(start.size())) std::memcpy(&request, start.data(), sizeof request);
  if (got > 0) {
    (void)connection.out.send(local::reply_to(request, local::frame_type::failure),
                              local::encode_failure(*connection.refused));
  }
  close(connection.socket.get());
}

/// Who does not read its answers, or still waits for one, is not read.
void server::set_interest(connection& connection) {
  const bool read = connection.out.empty() && !connection.held && !connection.answering;
  const bool write = !connection.out.empty() && !connection.out.lacks_descriptors();
  if (connection.out.lacks_descriptors()) look_again_soon();
  if (read == connection.reads && write == connection.writes) return;
  connection.reads = read;
  connection.writes = write;
  sockets_->set_interest(connection.watch, read, write);
}

void server::forget_session(int socket) {
  if (const auto found = connections_.find(socket); found != connections_.end()) found->second.session = 0;
}

void server::close(int socket) {
  const auto found = connections_.find(socket);
  if (found == connections_.end()) return;
  sockets_->unwatch(found->second.watch);
  connection gone = std::move(found->second);
  connections_.erase(found);
  gone.out.abandon();
  if (gone.out.descriptors() > 0) {
    // Closing would not take them back: they stay in the peer's queue, and would no longer be counted.
    ::shutdown(socket, SHUT_RDWR);
    partings_.push_back({std::move(gone.socket), std::move(gone.out), gone.peer.uid});
  }
  sessions_->connection_closed(gone.session, socket);
}

// ---------------------------------------------------------------------------------------------- descriptors in flight

bool server::may_send_descriptors(connection& to, local::frame_type request) {
  if (to.out.descriptors() > 0) return false;
  std::size_t unread = 0;
  for (auto& [socket, each] : connections_) {
    if (each.peer.uid == to.peer.uid) unread += each.out.descriptors() + each.promised;
  }
  for (parting& each : partings_) {
    if (each.uid == to.peer.uid) unread += each.out.descriptors();
  }
  const std::size_t most = descriptors_a_user(config_.get()->limits.descriptors_in_flight);
  // Slab queries leave room for attaches, of which limits.sessions_per_uid allows only so many.
  if (request == local::frame_type::attach) return unread == 0 || unread + attach_descriptors <= 2 * most;
  return unread == 0 || unread + local::max_frame_fds <= most;
}

void server::look_again_soon() {
  if (!std::exchange(looking_again_, true)) next_look_->set(clock::now() + look_again_interval);
}

/// Tries what was held back, beginning behind the connection that had the last turn.
void server::look_again() {
  looking_again_ = false;
  std::vector<int> waiting;
  for (const auto& [socket, each] : connections_) {
    if (each.held || each.out.lacks_descriptors()) waiting.push_back(socket);
  }
  std::ranges::rotate(waiting, std::ranges::upper_bound(waiting, looked_last_));
  for (const int socket : waiting) {
    const auto found = connections_.find(socket);
    if (found == connections_.end()) continue;
    connection& each = found->second;
    looked_last_ = socket;
    if (each.held) {
      handle(each, std::move(*std::exchange(each.held, std::nullopt)));
    } else if (!each.out.flush()) {
      close(socket);
    } else {
      set_interest(each);
    }
  }
}

/// Once a second: who is silent, or does not read, is let go.
void server::tick() {
  const auto now = clock::now();
  next_tick_->set(now + tick_interval);
  std::erase_if(partings_, [](parting& each) { return each.out.descriptors() == 0; });
  std::vector<int> done;
  for (auto& [socket, each] : connections_) {
    const bool unread = !each.out.empty() && now - each.out.stuck_since() > unread_limit;
    const bool silent = each.is_unused() && now - each.heard > silence_limit;
    if (unread || silent) done.push_back(socket);
    if (unread) ++counters_.unread;
  }
  for (const int socket : done) close(socket);
  sessions_->tick();
  if (now >= next_hits_ && config_.get()->metrics.listen) end_hit_span();
}

/// For the page alone, so not without one.
void server::end_hit_span() {
  next_hits_ = clock::now() + hit_history::span_length;
  reports_->want([this](const result<report_ptr>& report) {
    if (report) hits_.end_span((*report)->dram.instances, hit_history::clock::now());
  });
}

// ---------------------------------------------------------------------------------------------- requests

/// The root of this thread: whoever a handler failed for is let go, the others are served on.
void server::handler_failed(local::event_loop::watch_id id, const std::string& what) {
  ++counters_.failures;
  log_error(logger("server"), "a request was given up", {{"reason", what}});
  const auto whose =
      std::find_if(connections_.begin(), connections_.end(), [&](const auto& each) { return each.second.watch == id; });
  if (whose != connections_.end()) close(whose->first);
}

void server::handle(connection& connection, local::frame frame) {
  const bool first_look = connection.reads;
  if (first_look) connection.heard = clock::now();
  connection.attach_unread = false;
  const bool brings_descriptors =
      frame.header.type == local::frame_type::attach || frame.header.type == local::frame_type::slabs;
  if (brings_descriptors && !may_send_descriptors(connection, frame.header.type)) {
    if (clock::now() - connection.heard > unread_limit) {
      return answer(connection, frame.header,
                    fail(error_code::limit_exceeded,
                         "descriptors that the node sent to uid " + std::to_string(connection.peer.uid) +
                             " were not received; limits.descriptors_in_flight bounds them"));
    }
    if (first_look) ++counters_.held_back;
    connection.held = std::move(frame);
    look_again_soon();
    return set_interest(connection);
  }
  const local::frame_header request = frame.header;
  const auto done = dispatch(connection, frame);
  if (connection.answering && request.type == local::frame_type::attach) connection.promised = attach_descriptors;
  answer(connection, request, done);
}

void server::answer(connection& connection, const local::frame_header& request, const result<void>& done) {
  if (!done) {
    log_debug(logger("server"), "request refused", {{"pid", connection.peer.pid}, {"reason", done.error().describe()}});
    const auto sent =
        connection.out.send(local::reply_to(request, local::frame_type::failure), local::encode_failure(done.error()));
    if (!sent) return close(connection.socket.get());
  }
  set_interest(connection);
}

connection* server::find(const asker& who) {
  const auto found = connections_.find(who.socket);
  return found != connections_.end() && found->second.watch == who.watch ? &found->second : nullptr;
}

void server::answer_deferred(const asker& to, const std::function<result<void>(connection&)>& send) {
  connection* const who = find(to);
  if (who == nullptr) return;
  who->answering = false;
  who->promised = 0;
  who->heard = clock::now();
  answer(*who, to.request, send(*who));
}

result<void> server::dispatch(connection& connection, local::frame& frame) {
  switch (frame.header.type) {
    case local::frame_type::attach: return sessions_->attach(connection, frame);
    case local::frame_type::reattach: return sessions_->reattach(connection, frame);
    case local::frame_type::slabs: return sessions_->send_slabs(connection, frame);
    case local::frame_type::unconfirmed: return sessions_->send_unconfirmed(connection, frame);
    case local::frame_type::spans: return sessions_->take_spans(connection, frame);
    case local::frame_type::detach: return sessions_->detach(connection, frame.header);
    case local::frame_type::admin: return admin(connection, frame);
    default:
      return fail(error_code::malformed,
                  "unknown frame type " + std::to_string(static_cast<unsigned>(frame.header.type)));
  }
}

// ---------------------------------------------------------------------------------------------- the operator

void server::reply(const asker& to, const result<std::string>& text) {
  answer_deferred(to, [&](connection& who) {
    return text ? who.out.send_text(local::reply_to(to.request, local::frame_type::admin_reply), *text)
                : result<void>(std::unexpected(text.error()));
  });
}

server_report server::own_report() {
  server_report now = counters_;
  now.connections = connections_.size();
  now.closing = partings_.size();
  now.attaches_refused = sessions_->refusals();
  for (auto& [socket, each] : connections_) now.descriptors_in_flight += each.out.descriptors();
  for (parting& each : partings_) now.descriptors_in_flight += each.out.descriptors();
  return now;
}

node_facts server::facts_of(const report_ptr& report) {
  const std::chrono::duration<double> up = std::chrono::system_clock::now() - context_.node_started;
  return {.figures = {.uptime_s = up.count(),
                      .restarts = context_.restarts,
                      .exceptions = context_.exceptions->load(),
                      .queued_messages = report->queued,
                      .timers = sockets_->timers() + context_.path.timers(),
                      .log_dropped = dropped_log_lines(),
                      .sessions = report->dram.sessions.size()},
          .epoch = context_.epoch,
          .socket_path = context_.socket_path,
          .metrics = context_.metrics(),
          .dram = config_.get()->dram,
          .server = own_report(),
          .trace = context_.exporter ? context_.exporter->report() : trace_report(),
          .collector = config_.get()->trace.otlp,
          .populated = context_.populated(),
          .copies = context_.copies(),
          .report = report};
}

result<void> server::admin(connection& connection, const local::frame& frame) {
  if ((frame.header.flags & local::flag_more) != 0) {
    return fail(error_code::malformed, "an admin request has one frame");
  }
  const auto request = parse_admin_request({reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size()});
  if (!request) return std::unexpected(request.error());
  const config_ptr now = config_.get();
  const bool is_operator = may_administrate(connection, *now);
  const auto done = commands_->run(*request, {.uid = static_cast<std::uint32_t>(connection.peer.uid),
                                              .may_see = is_operator || may_attach(connection, *now),
                                              .may_administrate = is_operator,
                                              .defer = [&] {
                                                return [this, to = defer(connection, frame.header)](
                                                           const result<std::string>& text) { reply(to, text); };
                                              }});
  if (!done) return std::unexpected(done.error());
  if (!*done) return {};  // it waits for its answer
  return connection.out.send_text(local::reply_to(frame.header, local::frame_type::admin_reply), **done);
}

}  // namespace cenote
