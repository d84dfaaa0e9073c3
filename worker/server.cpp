#include "worker/server.hpp"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <future>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "actors/ask.hpp"
#include "config/logging.hpp"
#include "core/fair_share.hpp"
#include "core/text.hpp"
#include "worker/metrics_text.hpp"
#include "worker/status_json.hpp"

namespace cenote {

namespace {

using nlohmann::json;

constexpr auto actor_deadline = std::chrono::seconds(5);
constexpr auto drop_deadline = std::chrono::seconds(1);
constexpr auto report_deadline = std::chrono::seconds(7);  // of threads that wait for one
constexpr auto unread_limit = std::chrono::seconds(10);    // a client that does not read its answer is cut off
constexpr auto silence_limit = std::chrono::seconds(60);   // a connection without a session is closed after that
constexpr auto tick_interval = std::chrono::seconds(1);
constexpr auto look_again_interval = std::chrono::milliseconds(20);
constexpr int accepts_a_turn = 16;
constexpr std::size_t refused_connections = 32;   // of a user, that wait to be told why
constexpr std::size_t operator_connections = 16;  // beyond the limit, for those who may administrate
constexpr std::size_t attach_descriptors = 5;
constexpr std::uint32_t default_pins = 8192;
constexpr auto turn_away_pause = std::chrono::milliseconds(10);  // between attempts that cannot even refuse

/// Compares without telling by its time how much was right.
bool same_token(std::string_view a, std::string_view b) noexcept {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

/// A descriptor to give up when there are no others.
unique_fd open_spare() {
  return unique_fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (number == 0) (void)!::getrandom(&number, sizeof number, 0);
  return number;
}

error may_not_attach(uid_t uid) {
  return {error_code::permission_denied, "uid " + std::to_string(uid) +
                                             " may not attach; add it to auth.allow_uids, or a group of it to "
                                             "auth.allow_gids"};
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

/// True when the peer is in group `wanted`, by its primary or a supplementary group.
bool is_in_group(int socket, const local::peer_credentials& peer, gid_t wanted) {
  if (peer.gid == wanted) return true;
  std::array<gid_t, 256> groups{};
  socklen_t bytes = sizeof groups;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) != 0) return false;
  const auto end = groups.begin() + static_cast<std::ptrdiff_t>(bytes / sizeof(gid_t));
  return std::find(groups.begin(), end, wanted) != end;
}

result<std::pair<memory::index_writer, memory::version_table>> make_instance_memory(const std::string& id) {
  auto index_file = memory::shared_file::create("cenote-index-" + id.substr(0, 200), memory::index_segment_bytes);
  if (!index_file) return std::unexpected(index_file.error());
  auto index = memory::index_writer::create(std::move(*index_file));
  if (!index) return std::unexpected(index.error());
  auto version_file =
      memory::shared_file::create("cenote-versions-" + id.substr(0, 200), memory::version_table::segment_bytes);
  if (!version_file) return std::unexpected(version_file.error());
  auto versions = memory::version_table::create(std::move(*version_file));
  if (!versions) return std::unexpected(versions.error());
  return std::pair(std::move(*index), std::move(*versions));
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
  made->reports_ = std::make_unique<shared_reports>(made->context_.system, made->context_.node, made->sockets_);
  return made;
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

template <class Answer, class Actor, class... Arguments>
result<Answer> server::ask(const Actor& whom, Arguments... arguments) {
  return cenote::ask<Answer>(context_.system, actor_deadline, whom, std::move(arguments)...);
}

result<server::whole_report> server::report() {
  auto asked = std::make_shared<std::promise<result<whole_report>>>();
  auto answer = asked->get_future();
  sockets_->post([this, asked] {
    reports_->want([this, asked](const result<report_ptr>& report) {
      asked->set_value(report ? result<whole_report>(whole_report{*report, own_report()})
                              : std::unexpected(report.error()));
    });
  });
  if (answer.wait_for(report_deadline) == std::future_status::ready) return answer.get();
  return fail(error_code::deadline_exceeded, "the node is too busy to answer");
}

result<std::string> server::status() {
  const auto found = report();
  if (!found) return std::unexpected(found.error());
  return status_json(*found->node, *config(), context_, found->server);
}

result<std::string> server::metrics() {
  const auto found = report();
  if (!found) return std::unexpected(found.error());
  return metrics_text(*found->node, context_, found->server);
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
  on_loop([&] {
    const std::uint64_t number = session->number;
    last_session_ = std::max(last_session_, static_cast<std::uint32_t>(number));
    if (const auto opened = open(session, -1); !opened) {
      log_error(logger("server"), "a session was not taken over",
                {{"session", number}, {"reason", opened.error().describe()}});
    }
  });
}

void server::end_suspect(std::uint64_t number) {
  on_loop([&] {
    const auto found = sessions_.find(number);
    if (found == sessions_.end()) return;
    const session_resources& session = *found->second.resources;
    log_error(logger("server"), "workers died of what this session asked for: its process is ended",
              {{"session", number}, {"pid", session.pid}, {"client", session.client_name}});
    if (const auto killed = kill_session(number); !killed) {
      log_error(logger("server"), "the process of a session was not ended",
                {{"session", number}, {"reason", killed.error().describe()}});
    }
  });
}

result<void> server::serve(unique_fd listener) {
  result<void> served;
  on_loop([&] {
    listener_ = std::move(listener);
    spare_ = open_spare();
    auto watch = sockets_->watch(listener_.get(), [this](std::uint32_t) { accept_some(); });
    if (!watch) {
      served = std::unexpected(watch.error());
      return;
    }
    accepting_ = *watch;
    sockets_->post_at(clock::now() + tick_interval, [this] { tick(); });
  });
  return served;
}

void server::reload(config_ptr config) {
  std::atomic_store(&config_, std::move(config));
}

void server::drain(bool keeper_is_dead) {
  sockets_->post([this, keeper_is_dead] {
    draining_ = true;
    sockets_->unwatch(accepting_);
    if (keeper_is_dead) ::shutdown(listener_.get(), SHUT_RDWR);
    for (const auto& [number, each] : sessions_) {
      each.resources->set_phase(memory::session_phase::draining);
      each.resources->ring();
    }
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

std::optional<error> server::reason_to_refuse(const connection& from) const {
  const std::string who = "uid " + std::to_string(from.peer.uid);
  const bool is_operator = may_administrate(from);
  if (!is_operator && !may_attach(from)) return may_not_attach(from.peer.uid);
  const std::size_t most = config()->limits.connections_per_uid + (is_operator ? operator_connections : 0);
  const std::size_t own = connections_of(from.peer.uid);
  if (own >= most) {
    return error(error_code::limit_exceeded,
                 who + " has " + std::to_string(most) + " connections, limits.connections_per_uid allows no more");
  }
  const std::size_t room = open_files() / 2;  // the rest is for what sessions and instances need
  if (is_operator || own < fair_share(room, all_connections() - own)) return std::nullopt;
  return error(error_code::limit_exceeded,
               who + " has " + std::to_string(own) + " of " + std::to_string(room) +
                   " connections that there may be, and must leave as many to others; raise the daemon's limit of "
                   "open files");
}

/// Out of descriptors, as a rule. Whoever waits is told so with the help of the spare one: left alone, the listening
/// socket would stay readable and keep this thread busy.
void server::turn_away(const error& why) {
  if (!std::exchange(turning_away_, true)) {
    log_warn(logger("server"), "clients are turned away; raise the limit of open files", {{"reason", why.describe()}});
  }
  spare_.reset();
  if (const auto waiting = local::accept_one(listener_.get()); waiting && *waiting) {
    const error reason(error_code::limit_exceeded, "the node is out of file descriptors: " + why.message());
    (void)local::try_send_frame((*waiting)->get(), {.type = local::frame_type::failure}, local::encode_failure(reason),
                                {});
  } else {
    std::this_thread::sleep_for(turn_away_pause);
  }
  spare_ = open_spare();
}

void server::on_event(int socket, std::uint32_t events) {
  const auto found = connections_.find(socket);
  if (found == connections_.end()) return;
  connection& from = found->second;
  if ((events & EPOLLERR) != 0 && from.attach_unread) {
    // Its peer left with something unread, and that can only be the attach reply.
    end_session(from.session, "its client left before it was attached");
  }
  if ((events & EPOLLOUT) != 0) {
    if (!from.out.flush()) return close(socket);
    set_interest(from);
  }
  if (from.reads && (events & EPOLLIN) != 0) return read_one(from);
  if ((events & (EPOLLHUP | EPOLLERR)) != 0) close(socket);
}

/// One frame: the others that are ready have their turn before the next one.
void server::read_one(connection& from) {
  const int socket = from.socket.get();
  if (from.refused) return tell_refused(from);
  auto received = local::try_receive_frame(socket);
  if (received && !*received) return;
  if (received) return handle(from, std::move(**received));
  if (received.error().code() != error_code::closed) {
    (void)from.out.send({.type = local::frame_type::failure}, local::encode_failure(received.error()));
  }
  close(socket);
}

/// Nothing of what it sent is looked at but the number of the request; descriptors that came along are closed unseen.
void server::tell_refused(connection& from) {
  local::frame_header request;
  std::array<std::byte, sizeof request> start{};
  const ssize_t got = ::recv(from.socket.get(), start.data(), start.size(), MSG_DONTWAIT | MSG_TRUNC);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got >= static_cast<ssize_t>(start.size())) std::memcpy(&request, start.data(), sizeof request);
  if (got > 0) {
    (void)from.out.send(local::reply_to(request, local::frame_type::failure), local::encode_failure(*from.refused));
  }
  close(from.socket.get());
}

/// Who does not read its answers, or still waits for one, is not read.
void server::set_interest(connection& of) {
  const bool read = of.out.empty() && !of.held && !of.answering;
  const bool write = !of.out.empty() && !of.out.lacks_descriptors();
  if (of.out.lacks_descriptors()) look_again_soon();
  if (read == of.reads && write == of.writes) return;
  of.reads = read;
  of.writes = write;
  sockets_->set_interest(of.watch, read, write);
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
  const auto session = sessions_.find(gone.session);
  if (session == sessions_.end() || session->second.socket != socket) return;
  // Not its death: that is seen through the pidfd. What it is not using goes back.
  session->second.socket = -1;
  caf::anon_send(context_.dram, lost_atom_v, gone.session);
}

// ---------------------------------------------------------------------------------------------- descriptors in flight

bool server::may_send_descriptors(connection& to, local::frame_type request) {
  if (to.out.descriptors() > 0) return false;
  std::size_t unread = 0;
  for (auto& [socket, each] : connections_) {
    if (each.peer.uid == to.peer.uid) unread += each.out.descriptors();
  }
  for (parting& each : partings_) {
    if (each.uid == to.peer.uid) unread += each.out.descriptors();
  }
  const std::size_t most = descriptors_a_user(config()->limits.descriptors_in_flight);
  // Slab queries leave room for attaches, of which limits.sessions_per_uid allows only so many.
  if (request == local::frame_type::attach) return unread == 0 || unread + attach_descriptors <= 2 * most;
  return unread == 0 || unread + local::max_frame_fds <= most;
}

void server::look_again_soon() {
  if (std::exchange(looking_again_, true)) return;
  sockets_->post_at(clock::now() + look_again_interval, [this] {
    looking_again_ = false;
    look_again();
  });
}

/// Tries what was held back, beginning behind the connection that had the last turn.
void server::look_again() {
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
  sockets_->post_at(now + tick_interval, [this] { tick(); });
  std::erase_if(partings_, [](parting& each) { return each.out.descriptors() == 0; });
  std::vector<int> done;
  for (auto& [socket, each] : connections_) {
    const bool unread = !each.out.empty() && now - each.out.stuck_since() > unread_limit;
    const bool silent =
        each.session == 0 && each.out.empty() && !each.answering && !each.held && now - each.heard > silence_limit;
    if (unread || silent) done.push_back(socket);
    if (unread) ++counters_.unread;
  }
  for (const int socket : done) close(socket);
  for (const std::uint64_t number : std::exchange(undropped_, {})) drop_entry(number);
  for (const std::uint64_t number : std::exchange(unreleased_, {})) release(number);
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

void server::handle(connection& from, local::frame frame) {
  const bool first_look = from.reads;
  if (first_look) from.heard = clock::now();
  from.attach_unread = false;
  const bool brings_descriptors =
      frame.header.type == local::frame_type::attach || frame.header.type == local::frame_type::slabs;
  if (brings_descriptors && !may_send_descriptors(from, frame.header.type)) {
    if (clock::now() - from.heard > unread_limit) {
      return answer(
          from, frame.header,
          fail(error_code::limit_exceeded, "descriptors that the node sent to uid " + std::to_string(from.peer.uid) +
                                               " were not received; limits.descriptors_in_flight bounds them"));
    }
    if (first_look) ++counters_.held_back;
    from.held = std::move(frame);
    look_again_soon();
    return set_interest(from);
  }
  const local::frame_header request = frame.header;
  const auto done = dispatch(from, frame);
  answer(from, request, done);
}

void server::answer(connection& from, const local::frame_header& request, const result<void>& done) {
  if (!done) {
    log_debug(logger("server"), "request refused", {{"pid", from.peer.pid}, {"reason", done.error().describe()}});
    const auto sent =
        from.out.send(local::reply_to(request, local::frame_type::failure), local::encode_failure(done.error()));
    if (!sent) return close(from.socket.get());
  }
  set_interest(from);
}

result<void> server::dispatch(connection& from, local::frame& frame) {
  switch (frame.header.type) {
    case local::frame_type::attach: return attach(from, frame);
    case local::frame_type::reattach: return reattach(from, frame);
    case local::frame_type::slabs: return send_slabs(from, frame);
    case local::frame_type::detach: {
      if (from.session == 0) return fail(error_code::malformed, "detach before attach");
      end_session(std::exchange(from.session, 0), "detached");
      return from.out.send(local::reply_to(frame.header, local::frame_type::done), {});
    }
    case local::frame_type::admin: return admin(from, frame);
    default:
      return fail(error_code::malformed,
                  "unknown frame type " + std::to_string(static_cast<unsigned>(frame.header.type)));
  }
}

// ---------------------------------------------------------------------------------------------- attaching

bool server::may_attach(const connection& from) const {
  const auto& auth = config()->auth;
  if (from.peer.uid == ::geteuid()) return true;
  if (auth.allow_uids.empty() && auth.allow_gids.empty()) return from.peer.uid == 0;
  if (std::find(auth.allow_uids.begin(), auth.allow_uids.end(), from.peer.uid) != auth.allow_uids.end()) return true;
  return std::any_of(auth.allow_gids.begin(), auth.allow_gids.end(),
                     [&](gid_t gid) { return is_in_group(from.socket.get(), from.peer, gid); });
}

bool server::may_administrate(const connection& from) const {
  if (from.peer.uid == ::geteuid() || from.peer.uid == 0) return true;
  const auto admin = config()->auth.admin_gid;
  return admin && is_in_group(from.socket.get(), from.peer, *admin);
}

result<void> server::check_group(const connection& from, const local::attach_request& request,
                                 const config::node_config& now) const {
  const auto group = now.groups.find(request.spec.paying_group());
  if (group == now.groups.end()) return {};
  const auto& uids = group->second.uids;
  if (!uids.empty() && std::ranges::find(uids, from.peer.uid) == uids.end()) {
    return fail(error_code::permission_denied, "uid " + std::to_string(from.peer.uid) +
                                                   " may not name instance group `" + group->first + "`; groups.\"" +
                                                   group->first + "\".uids has those who may");
  }
  if (!group->second.token.empty() && !same_token(group->second.token, request.token)) {
    return fail(error_code::permission_denied,
                "instance group `" + group->first + "` needs a token, and this is not it");
  }
  return {};
}

result<void> server::check_limits(const connection& from, const config::node_config& now) const {
  if (sessions_.size() >= now.node.max_sessions) {
    return fail(error_code::limit_exceeded,
                std::to_string(sessions_.size()) + " sessions are attached, node.max_sessions allows no more");
  }
  const auto own = static_cast<std::uint64_t>(
      std::ranges::count_if(sessions_, [&](const auto& each) { return each.second.resources->uid == from.peer.uid; }));
  if (own >= now.limits.sessions_per_uid) {
    return fail(error_code::limit_exceeded, "uid " + std::to_string(from.peer.uid) + " has " + std::to_string(own) +
                                                " sessions, limits.sessions_per_uid allows no more");
  }
  if (!may_administrate(from) && own >= fair_share(now.node.max_sessions, sessions_.size() - own)) {
    return fail(error_code::limit_exceeded, "uid " + std::to_string(from.peer.uid) + " has " + std::to_string(own) +
                                                " of the node's " + std::to_string(now.node.max_sessions) +
                                                " sessions, and must leave as many to others; raise "
                                                "node.max_sessions");
  }
  return {};
}

result<void> server::check_client(const connection& from, const local::attach_request& request) const {
  const config_ptr now = config();
  if (auto allowed = check_group(from, request, *now); !allowed) return allowed;
  if (auto allowed = check_limits(from, *now); !allowed) return allowed;
  const std::uint32_t most = std::min<std::uint32_t>(now->session.max_pins, memory::session_memory::max_pin_slots);
  if (request.max_pins > most) {
    return fail(error_code::limit_exceeded, "max_pins is " + std::to_string(request.max_pins) +
                                                ", session.max_pins allows " + std::to_string(most));
  }
  return {};
}

result<dram::instance_number> server::find_or_make_instance(const instance_spec& spec, uid_t owner) {
  auto found = ask<outcome>(context_.dram, find_atom_v, spec_ptr(std::make_shared<const instance_spec>(spec)),
                            static_cast<std::uint32_t>(owner));
  if (!found) return std::unexpected(found.error());
  const auto number = found->get();
  if (!number) return std::unexpected(number.error());
  if (*number != 0) return static_cast<dram::instance_number>(*number);

  if (context_.next_instance == ~dram::instance_number{0}) {  // the next number would be another one's
    return fail(error_code::limit_exceeded, "the node has no numbers left for instances; restart it");
  }
  auto memory = make_instance_memory(spec.id);
  if (!memory) return std::unexpected(memory.error());
  const dram::instance_number fresh = context_.next_instance++;
  byte_writer meta;
  encode(meta, spec);
  meta.put(static_cast<std::uint32_t>(owner));
  const std::array fds{memory->first.file().fd().get(), memory->second.file().fd().get()};
  if (auto kept = context_.keeper.put(local::entry_kind::instance, fresh, meta.bytes(), fds); !kept) {
    (void)context_.keeper.drop(local::entry_kind::instance, fresh);  // it may have it, and only not have said so
    return std::unexpected(kept.error());
  }
  auto made = std::make_shared<new_instance>(new_instance{
      fresh, spec, std::move(memory->first), std::move(memory->second), static_cast<std::uint32_t>(owner)});
  auto added = ask<outcome>(context_.dram, add_atom_v, made);
  if (!added) return std::unexpected(added.error());
  if (const auto status = added->get(); !status) {
    (void)context_.keeper.drop(local::entry_kind::instance, fresh);
    return std::unexpected(status.error());
  }
  log_info(logger("server"), "instance made", {{"instance", spec.id}, {"group", spec.paying_group()}});
  return fresh;
}

result<void> server::attach(connection& from, const local::frame& frame) {
  if (draining_) return fail(error_code::not_running, "the node is shutting down");
  if (from.session != 0) return fail(error_code::malformed, "this connection has a session already");
  if (!may_attach(from)) return std::unexpected(may_not_attach(from.peer.uid));
  auto request = local::decode_attach(frame.payload, frame.header.minor);
  if (!request) return std::unexpected(request.error());
  end_unheard_of(from, *request);
  if (auto allowed = check_client(from, *request); !allowed) return allowed;
  auto instance = find_or_make_instance(request->spec, from.peer.uid);
  if (!instance) return std::unexpected(instance.error());
  auto shared = ask<descriptors_ptr>(context_.dram, describe_atom_v, *instance);
  if (!shared) return std::unexpected(shared.error());
  if (!(*shared)->index) return fail(error_code::system, "this process is out of file descriptors");

  auto made = make_resources(from, *request);
  if (!made) return std::unexpected(made.error());
  const std::shared_ptr<session_resources>& session = made->session;
  session->instance = *instance;
  auto opened = keep_session(context_.keeper, *session);
  if (opened) opened = open(session, from.socket.get());
  if (!opened) {
    release(session->number);  // whatever was done of it, or is still on its way
    return opened;
  }
  from.session = session->number;
  log_info(logger("server"), "attached",
           {{"session", session->number}, {"pid", session->pid}, {"instance", request->spec.id}});

  const local::attach_reply reply{session->number, session->secret, context_.epoch, session->pin_slots};
  const std::array fds{session->segment.fd().get(), session->submit_doorbell.get(), made->ear.get(),
                       (*shared)->index.get(), (*shared)->versions.get()};
  auto sent = from.out.send(local::reply_to(frame.header, local::frame_type::attach_reply), local::encode(reply), fds);
  if (!sent) end_session(session->number, "its client left before it was attached");
  from.attach_unread = sent.has_value();
  return sent;
}

/// What an earlier attempt of the same call made: its worker died before the client had the answer.
void server::end_unheard_of(const connection& from, const local::attach_request& request) {
  if (request.call == 0) return;
  const auto made = std::ranges::find_if(sessions_, [&](const auto& each) {
    return each.second.resources->attach_call == request.call && each.second.resources->pid == from.peer.pid;
  });
  if (made != sessions_.end()) end_session(made->first, "its client never heard of it");
}

/// The memory and identity of a new session, but for its instance.
result<server::fresh_session> server::make_resources(const connection& from, const local::attach_request& request) {
  auto pidfd = local::pidfd_of(from.socket.get());
  if (!pidfd) return std::unexpected(pidfd.error());
  auto session = std::make_shared<session_resources>();
  session->number = number_session();
  session->secret = random_number();
  session->client_name = request.client_name;
  session->attach_call = request.call;
  session->pid = from.peer.pid;
  session->uid = from.peer.uid;
  session->gid = from.peer.gid;
  session->attached = std::chrono::system_clock::now();
  session->pin_slots =
      request.max_pins != 0 ? request.max_pins : std::min<std::uint32_t>(default_pins, config()->session.max_pins);
  session->pidfd = std::move(*pidfd);
  auto ear = make_session(*session);
  if (!ear) return std::unexpected(ear.error());
  return fresh_session{std::move(session), std::move(*ear)};
}

/// Epoch (high half) | running number (low half). Block records know sessions by the low half alone, so that of no two
/// living ones is equal: it goes on behind those of earlier workers, around its end, and past those in use.
std::uint64_t server::number_session() {
  const auto is_taken = [&](const auto& each) { return static_cast<std::uint32_t>(each.first) == last_session_; };
  do ++last_session_;
  while (last_session_ == 0 || std::ranges::any_of(sessions_, is_taken));
  return (context_.epoch << 32) | last_session_;
}

result<void> server::open(const std::shared_ptr<session_resources>& session, int socket) {
  if (sessions_.contains(session->number)) {
    return fail(error_code::internal, "there is a session " + std::to_string(session->number) + " already");
  }
  memory::shared_store(session->view.header().worker_epoch, context_.epoch, std::memory_order_release,
                       "session.worker_epoch"_point);
  memory::shared_store(session->view.header().wants_checksums, config()->nvme.paths.empty() ? 0 : 1,
                       std::memory_order_relaxed, "session.wants_checksums"_point);
  const std::uint64_t number = session->number;
  const bool recovered = socket < 0;
  if (!recovered) {
    auto added = ask<outcome>(context_.dram, open_atom_v, session_ptr(session));
    if (!added) return std::unexpected(added.error());
    if (const auto status = added->get(); !status) return std::unexpected(status.error());
  }
  auto actor = ask<session_actor>(context_.node, open_atom_v, session_ptr(session));
  if (!actor) return std::unexpected(actor.error());
  auto doorbell = context_.path.watch(session, *actor);
  if (!doorbell) return std::unexpected(doorbell.error());
  auto death =
      sockets_->watch(session->pidfd.get(), [this, number](std::uint32_t) { end_session(number, "process died"); });
  if (!death) {
    context_.path.unwatch(*doorbell);
    return std::unexpected(death.error());
  }
  sessions_.emplace(number, attached{session, *actor, *doorbell, *death, socket, false});
  caf::anon_send(*actor, bell_atom_v);  // arms the ring, or finds what a dead worker left in it
  if (recovered) session->ring();
  return {};
}

result<void> server::reattach(connection& from, const local::frame& frame) {
  const auto request = local::decode_reattach(frame.payload, frame.header.minor);
  if (!request) return std::unexpected(request.error());
  const auto found = sessions_.find(request->session);
  if (found == sessions_.end() || found->second.resources->secret != request->secret ||
      found->second.resources->pid != from.peer.pid) {
    return fail(error_code::closed, "the node does not know this session; attach again");
  }
  if (found->second.killed) return fail(error_code::session_killed, "the operator ended this session");
  if (from.session != 0 && from.session != request->session) {
    return fail(error_code::malformed, "this connection has another session");
  }
  const int before = found->second.socket;
  found->second.socket = from.socket.get();
  from.session = request->session;
  if (before >= 0 && before != from.socket.get()) {
    connections_.at(before).session = 0;
    close(before);
  }
  // A list that was made before this worker began may lack what its predecessor handed out in between.
  const bool whole = frame.header.minor < 3 || request->listed_in == context_.epoch;
  auto back = ask<outcome>(context_.dram, back_atom_v, request->session,
                           whole ? std::make_shared<const std::vector<local::held_block>>(request->held) : nullptr);
  if (!back) return std::unexpected(back.error());
  if (const auto status = back->get(); !status) return std::unexpected(status.error());
  byte_writer reply;
  reply.put(context_.epoch);
  return from.out.send(local::reply_to(frame.header, local::frame_type::reattach_reply), std::move(reply).take());
}

result<void> server::send_slabs(connection& from, const local::frame& frame) {
  const auto session = sessions_.find(from.session);
  if (session == sessions_.end()) return fail(error_code::malformed, "slabs before attach");
  auto indices = local::decode_slab_query(frame.payload);
  if (!indices) return std::unexpected(indices.error());
  auto handles = ask<slab_handles_ptr>(context_.dram, handles_atom_v, session->second.resources->instance, *indices);
  if (!handles) return std::unexpected(handles.error());
  return from.out.send(local::reply_to(frame.header, local::frame_type::slabs_reply),
                       local::encode_slabs((*handles)->slabs), local::numbers_of((*handles)->fds));
}

void server::end_session(std::uint64_t number, std::string_view why) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  const attached gone = std::move(found->second);
  sessions_.erase(found);
  context_.path.unwatch(gone.doorbell);
  sockets_->unwatch(gone.death);
  release(number);
  if (const auto open = connections_.find(gone.socket); open != connections_.end()) open->second.session = 0;
  log_info(logger("server"), "session ended", {{"session", number}, {"pid", gone.resources->pid}, {"why", why}});
}

/// Of the node's actors and the keeper. What timed out before may still be carried out: this comes behind it.
void server::release(std::uint64_t number) {
  if (const auto freed = ask<outcome>(context_.node, release_atom_v, number); !freed) {
    log_error(logger("server"), "a session was not released",
              {{"session", number}, {"reason", freed.error().describe()}});
    // A question that nobody heard in time is not asked any more; releasing twice does no harm.
    if (freed.error().code() == error_code::deadline_exceeded) unreleased_.push_back(number);
  }
  drop_entry(number);
}

void server::drop_entry(std::uint64_t number) {
  const auto dropped = context_.keeper.drop(local::entry_kind::session, number, drop_deadline);
  if (dropped) return;
  log_warn(logger("server"), "the keeper did not drop a session", {{"reason", dropped.error().describe()}});
  if (dropped.error().code() == error_code::deadline_exceeded) undropped_.push_back(number);  // tried again
}

// ---------------------------------------------------------------------------------------------- the operator

result<void> server::kill_session(std::uint64_t number) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) {
    return fail(error_code::invalid_argument, "no session " + std::to_string(number) + "; `cenote status` lists them");
  }
  found->second.killed = true;
  found->second.resources->set_phase(memory::session_phase::killed);
  found->second.resources->ring();
  caf::anon_send(context_.dram, lost_atom_v, number);
  // Only the end of the process proves that it neither reads nor writes any more.
  const pid_t pid = found->second.resources->pid;
  if (::syscall(SYS_pidfd_send_signal, found->second.resources->pidfd.get(), SIGKILL, nullptr, 0) != 0) {
    return fail(error_code::permission_denied, "session " + std::to_string(number) +
                                                   " is refused from now on, but its blocks stay until its process " +
                                                   std::to_string(pid) + " ends: the daemon may not kill it");
  }
  return {};
}

server::asker server::defer(connection& from, const local::frame_header& request) {
  from.answering = true;
  return {from.socket.get(), from.watch, request};
}

void server::reply(const asker& to, const result<std::string>& text) {
  const auto found = connections_.find(to.socket);
  if (found == connections_.end() || found->second.watch != to.watch) return;  // it left meanwhile
  connection& who = found->second;
  who.answering = false;
  who.heard = clock::now();
  answer(who, to.request,
         text ? who.out.send_text(local::reply_to(to.request, local::frame_type::admin_reply), *text)
              : result<void>(std::unexpected(text.error())));
}

void server::send_status(const asker& to) {
  reports_->want([this, to](const result<report_ptr>& report) {
    if (!report) return reply(to, std::unexpected(report.error()));
    if (rendered_turn_ != reports_->turn()) {
      rendered_text_ = status_json(**report, *config(), context_, own_report());
      rendered_turn_ = reports_->turn();
    }
    reply(to, rendered_text_);
  });
}

server_report server::own_report() {
  server_report now = counters_;
  now.connections = connections_.size();
  now.closing = partings_.size();
  for (auto& [socket, each] : connections_) now.descriptors_in_flight += each.out.descriptors();
  for (parting& each : partings_) now.descriptors_in_flight += each.out.descriptors();
  return now;
}

/// Asks the tier for something that may take until its disks have answered: nobody else waits for it.
template <class... Arguments>
void server::count_blocks(const asker& to, const char* what, Arguments... arguments) {
  const std::weak_ptr<local::event_loop> loop = sockets_;
  ask_then<outcome>(
      context_.system, [] { return true; },
      [this, to, what, loop](const result<outcome>& counted) {
        const auto count = counted ? counted->get() : std::unexpected(counted.error());
        result<std::string> text =
            count ? result<std::string>(json({{what, *count}}).dump()) : std::unexpected(count.error());
        if (const auto still = loop.lock()) {
          still->post([this, to, text = std::move(text)] { reply(to, text); });
        }
      },
      context_.dram, std::move(arguments)...);
}

result<void> server::clear(connection& from, const local::frame_header& asked, const admin_request& request) {
  if (request.all == request.instance.has_value() || (request.instance && request.instance->empty())) {
    return fail(error_code::invalid_argument, "clear needs either an `instance`, or `all`");
  }
  count_blocks(defer(from, asked), "cleared", wipe_atom_v, request.instance.value_or(std::string()));
  return {};
}

result<void> server::corrupt(connection& from, const local::frame_header& asked) {
  if (!config()->debug.enabled) {
    return fail(error_code::permission_denied, "this node alters no blocks: it runs without debug.enabled=true");
  }
  count_blocks(defer(from, asked), "altered", corrupt_atom_v);
  return {};
}

result<void> server::admin(connection& from, const local::frame& frame) {
  if ((frame.header.flags & local::flag_more) != 0) {
    return fail(error_code::malformed, "an admin request has one frame");
  }
  const auto request = parse_admin_request({reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size()});
  if (!request) return std::unexpected(request.error());
  const std::string& command = request->command;
  if (command == "status" || command == "stats") {
    if (!may_attach(from) && !may_administrate(from))
      return fail(error_code::permission_denied, "you may not see the status");
    send_status(defer(from, frame.header));
    return {};
  }
  if (!may_administrate(from)) {
    return fail(error_code::permission_denied,
                "`" + printable(command) + "` is for the daemon's user, root, or members of auth.admin_gid");
  }
  if (command == "clear") return clear(from, frame.header, *request);
  if (command == "corrupt") return corrupt(from, frame.header);
  auto done = administrate(*request);
  if (!done) return std::unexpected(done.error());
  return from.out.send_text(local::reply_to(frame.header, local::frame_type::admin_reply), *done);
}

result<std::string> server::administrate(const admin_request& request) {
  if (request.command == "session_kill") {
    if (!request.id) return fail(error_code::invalid_argument, "session_kill needs a number as `id`");
    if (auto killed = kill_session(*request.id); !killed) return std::unexpected(killed.error());
    return json({{"killed", *request.id}}).dump();
  }
  if (request.command == "upgrade") {
    if (auto asked = context_.keeper.ask_upgrade(); !asked) return std::unexpected(asked.error());
    return json({{"upgrading", true}}).dump();
  }
  if (request.command == "log_level") {
    if (!request.level) return fail(error_code::invalid_argument, "log_level needs a `level`, such as info");
    if (auto set = set_levels(*request.level); !set) return std::unexpected(set.error());
    return json({{"level", *request.level}}).dump();
  }
  return fail(error_code::invalid_argument, "unknown command `" + printable(request.command) + "`");
}

}  // namespace cenote
