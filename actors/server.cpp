#include "actors/server.hpp"

#include <fcntl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "actors/ask.hpp"
#include "actors/metrics_text.hpp"
#include "actors/status_json.hpp"
#include "config/logging.hpp"
#include "core/text.hpp"

namespace cenote {

namespace {

using nlohmann::json;

constexpr auto actor_deadline = std::chrono::seconds(5);
constexpr auto reply_deadline = std::chrono::seconds(1);  // a client that does not read its answer is cut off
constexpr std::uint32_t default_pins = 8192;
constexpr auto turn_away_pause = std::chrono::milliseconds(10);  // between attempts that cannot even refuse

local::deadline soon() {
  return std::chrono::steady_clock::now() + reply_deadline;
}

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

/// True when the peer is in group `wanted`, by its primary or a supplementary group.
bool is_in_group(int socket, const local::peer_credentials& peer, gid_t wanted) {
  if (peer.gid == wanted) return true;
  std::array<gid_t, 256> groups{};
  socklen_t bytes = sizeof groups;
  if (::getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, groups.data(), &bytes) != 0) return false;
  const auto end = groups.begin() + static_cast<std::ptrdiff_t>(bytes / sizeof(gid_t));
  return std::find(groups.begin(), end, wanted) != end;
}

result<std::pair<memory::index_writer, memory::segment>> make_instance_memory(const std::string& id) {
  auto index = memory::segment::create("cenote-index-" + id.substr(0, 200), memory::index_segment_bytes);
  if (!index) return std::unexpected(index.error());
  auto versions = memory::segment::create("cenote-versions-" + id.substr(0, 200), memory::version_table::segment_bytes);
  if (!versions) return std::unexpected(versions.error());
  memory::write_header(memory::version_table(versions->data()).header(), memory::segment_kind::versions,
                       memory::version_table::segment_bytes);
  auto writer = memory::index_writer::create(std::move(*index));
  if (!writer) return std::unexpected(writer.error());
  return std::pair(std::move(*writer), std::move(*versions));
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
  const auto unanswered = [count = made->context_.exceptions](local::event_loop::watch_id, const std::string& what) {
    ++*count;
    log_error(logger("server"), "a doorbell was not answered", {{"reason", what}});
  };
  auto doorbells = local::event_loop::start("cenote-rings", unanswered);
  if (!doorbells) return std::unexpected(doorbells.error());
  made->sockets_ = std::move(*sockets);
  made->doorbells_ = std::move(*doorbells);
  // The epoch keeps the numbers of different workers apart; the low bits tell 64 sessions apart in a block's record.
  made->next_session_ = (made->context_.epoch << 16) + 1;
  return made;
}

server::~server() {
  stop();
}

void server::watch_over(pulse& all) {
  all.add("the thread of sockets", [this](std::function<void()> answer) { sockets_->post(std::move(answer)); });
  all.add("the thread of doorbells", [this](std::function<void()> answer) { doorbells_->post(std::move(answer)); });
}

void server::stop() {
  if (sockets_) sockets_->stop();
  if (doorbells_) doorbells_->stop();
}

template <class Answer, class Actor, class... Arguments>
result<Answer> server::ask(const Actor& whom, Arguments... arguments) {
  return cenote::ask<Answer>(context_.system, actor_deadline, whom, std::move(arguments)...);
}

result<report_ptr> server::report() const {
  return cenote::ask<report_ptr>(context_.system, actor_deadline, context_.node, report_atom_v);
}

result<std::string> server::status() const {
  const auto found = report();
  if (!found) return std::unexpected(found.error());
  return status_json(**found, *config(), context_);
}

result<std::string> server::metrics() const {
  const auto found = report();
  if (!found) return std::unexpected(found.error());
  return metrics_text(**found, context_);
}

// ---------------------------------------------------------------------------------------------- life

void server::adopt(const std::shared_ptr<session_resources>& session) {
  const std::uint64_t number = session->number;
  if (const auto opened = open(session, -1); !opened) {
    log_error(logger("server"), "a session was not taken over",
              {{"session", number}, {"reason", opened.error().describe()}});
  }
}

result<void> server::serve(unique_fd listener) {
  listener_ = std::move(listener);
  spare_ = open_spare();
  auto watch = sockets_->watch(listener_.get(), [this](std::uint32_t) { accept_all(); });
  if (!watch) return std::unexpected(watch.error());
  accepting_ = *watch;
  return {};
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

void server::accept_all() {
  while (true) {
    auto accepted = local::accept_one(listener_.get());
    if (!accepted) return turn_away(accepted.error());
    if (!*accepted) return;
    turning_away_ = false;
    const int socket = (*accepted)->get();
    auto peer = local::credentials_of(socket);
    connection made;
    made.socket = std::move(**accepted);
    made.peer = peer.value_or(local::peer_credentials{});
    // Told in answer to its first request: a frame sent before a close is lost if the request is not read.
    if (!peer) made.refused = peer.error();
    auto watch = sockets_->watch(socket, [this, socket](std::uint32_t) { on_readable(socket); });
    if (!watch) continue;
    made.watch = *watch;
    connections_.emplace(socket, std::move(made));
  }
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

void server::on_readable(int socket) {
  while (true) {
    const auto found = connections_.find(socket);
    if (found == connections_.end()) return;
    auto received = local::try_receive_frame(socket);
    if (received && !*received) return;
    if (!received) {
      if (received.error().code() != error_code::closed) {
        (void)local::try_send_frame(socket, {.type = local::frame_type::failure},
                                    local::encode_failure(received.error()), {});
      }
      close(socket);
      return;
    }
    handle(found->second, std::move(**received));
  }
}

void server::close(int socket) {
  const auto found = connections_.find(socket);
  if (found == connections_.end()) return;
  sockets_->unwatch(found->second.watch);
  const std::uint64_t number = found->second.session;
  connections_.erase(found);
  const auto session = sessions_.find(number);
  if (session == sessions_.end() || session->second.socket != socket) return;
  // Not its death: that is seen through the pidfd. What it is not using goes back.
  session->second.socket = -1;
  caf::anon_send(context_.dram, lost_atom_v, number);
}

/// The root of this thread: whoever a handler failed for is let go, the others are served on.
void server::handler_failed(local::event_loop::watch_id id, const std::string& what) {
  log_error(logger("server"), "a request was given up", {{"reason", what}});
  const auto whose =
      std::find_if(connections_.begin(), connections_.end(), [&](const auto& each) { return each.second.watch == id; });
  if (whose != connections_.end()) close(whose->first);
}

void server::handle(connection& from, local::frame frame) {
  const int socket = from.socket.get();
  const local::frame_header request = frame.header;
  if (const auto done = dispatch(from, frame); !done) {
    log_debug(logger("server"), "request refused", {{"pid", from.peer.pid}, {"reason", done.error().describe()}});
    const auto sent = local::try_send_frame(socket, local::reply_to(request, local::frame_type::failure),
                                            local::encode_failure(done.error()), {});
    if (!sent || !*sent) close(socket);
  }
}

result<void> server::dispatch(connection& from, local::frame& frame) {
  if (from.refused) return std::unexpected(*from.refused);
  switch (frame.header.type) {
    case local::frame_type::attach: return attach(from, frame);
    case local::frame_type::reattach: return reattach(from, frame);
    case local::frame_type::slabs: return send_slabs(from, frame);
    case local::frame_type::detach: {
      if (from.session == 0) return fail(error_code::malformed, "detach before attach");
      const std::uint64_t number = std::exchange(from.session, 0);
      const int socket = from.socket.get();
      end_session(number, "detached");
      return local::send_frame(socket, local::reply_to(frame.header, local::frame_type::done), {}, {}, soon());
    }
    case local::frame_type::admin: {
      if ((frame.header.flags & local::flag_more) != 0) {
        return fail(error_code::malformed, "an admin request has one frame");
      }
      auto answer = admin(from, {reinterpret_cast<const char*>(frame.payload.data()), frame.payload.size()});
      if (!answer) return std::unexpected(answer.error());
      return local::send_text(from.socket.get(), local::reply_to(frame.header, local::frame_type::admin_reply), *answer,
                              soon());
    }
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

result<void> server::check_client(const connection& from, const local::attach_request& request) const {
  const config_ptr now = config();
  if (draining_) return fail(error_code::not_running, "the node is shutting down");
  if (from.session != 0) return fail(error_code::malformed, "this connection has a session already");
  if (!may_attach(from)) {
    return fail(error_code::permission_denied, "uid " + std::to_string(from.peer.uid) +
                                                   " may not attach; add it to auth.allow_uids, or a group of it to "
                                                   "auth.allow_gids");
  }
  const auto group = now->groups.find(request.spec.paying_group());
  if (group != now->groups.end() && !group->second.token.empty() && !same_token(group->second.token, request.token)) {
    return fail(error_code::permission_denied,
                "instance group `" + group->first + "` needs a token, and this is not it");
  }
  if (sessions_.size() >= now->node.max_sessions) {
    return fail(error_code::limit_exceeded,
                std::to_string(sessions_.size()) + " sessions are attached, node.max_sessions allows no more");
  }
  const std::uint32_t most = std::min<std::uint32_t>(now->session.max_pins, memory::session_memory::max_pin_slots);
  if (request.max_pins > most) {
    return fail(error_code::limit_exceeded, "max_pins is " + std::to_string(request.max_pins) +
                                                ", session.max_pins allows " + std::to_string(most));
  }
  return {};
}

result<dram::instance_number> server::find_or_make_instance(const instance_spec& spec) {
  auto found = ask<outcome>(context_.dram, find_atom_v, std::make_shared<const instance_spec>(spec));
  if (!found) return std::unexpected(found.error());
  const auto number = found->get();
  if (!number) return std::unexpected(number.error());
  if (*number != 0) return static_cast<dram::instance_number>(*number);

  auto memory = make_instance_memory(spec.id);
  if (!memory) return std::unexpected(memory.error());
  const dram::instance_number fresh = context_.next_instance++;
  byte_writer meta;
  encode(meta, spec);
  const std::array fds{memory->first.memory().fd().get(), memory->second.fd().get()};
  if (auto kept = context_.keeper.put(local::entry_kind::instance, fresh, meta.bytes(), fds); !kept) {
    return std::unexpected(kept.error());
  }
  auto made =
      std::make_shared<new_instance>(new_instance{fresh, spec, std::move(memory->first), std::move(memory->second)});
  auto added = ask<outcome>(context_.dram, add_atom_v, made);
  if (!added) return std::unexpected(added.error());
  if (const auto status = added->get(); !status) return std::unexpected(status.error());
  log_info(logger("server"), "instance made", {{"instance", spec.id}, {"group", spec.paying_group()}});
  return fresh;
}

result<void> server::attach(connection& from, const local::frame& frame) {
  auto request = local::decode_attach(frame.payload, frame.header.minor);
  if (!request) return std::unexpected(request.error());
  if (auto allowed = check_client(from, *request); !allowed) return allowed;
  auto pidfd = local::pidfd_of(from.socket.get());
  if (!pidfd) return std::unexpected(pidfd.error());
  auto instance = find_or_make_instance(request->spec);
  if (!instance) return std::unexpected(instance.error());
  auto shared = ask<descriptors_ptr>(context_.dram, describe_atom_v, *instance);
  if (!shared) return std::unexpected(shared.error());
  if (!(*shared)->index) return fail(error_code::system, "this process is out of file descriptors");

  auto session = std::make_shared<session_resources>();
  session->number = next_session_++;
  session->secret = random_number();
  session->instance = *instance;
  session->client_name = request->client_name;
  session->pid = from.peer.pid;
  session->uid = from.peer.uid;
  session->gid = from.peer.gid;
  session->attached = std::chrono::system_clock::now();
  session->pin_slots =
      request->max_pins != 0 ? request->max_pins : std::min<std::uint32_t>(default_pins, config()->session.max_pins);
  session->pidfd = std::move(*pidfd);
  auto ear = make_session(*session);
  if (!ear) return std::unexpected(ear.error());
  if (auto kept = keep_session(context_.keeper, *session); !kept) return kept;
  if (auto opened = open(session, from.socket.get()); !opened) return opened;
  from.session = session->number;
  log_info(logger("server"), "attached",
           {{"session", session->number}, {"pid", session->pid}, {"instance", request->spec.id}});

  const local::attach_reply reply{session->number, session->secret, context_.epoch, session->pin_slots};
  const std::array fds{session->segment.fd().get(), session->submit_doorbell.get(), ear->get(), (*shared)->index.get(),
                       (*shared)->versions.get()};
  return local::send_frame(from.socket.get(), local::reply_to(frame.header, local::frame_type::attach_reply),
                           local::encode(reply), fds, soon());
}

result<void> server::open(const std::shared_ptr<session_resources>& session, int socket) {
  memory::shared_store(session->view.header().worker_epoch, context_.epoch, std::memory_order_release,
                       "session.worker_epoch"_point);
  const std::uint64_t number = session->number;
  const bool recovered = socket < 0;
  if (!recovered) {
    auto added = ask<outcome>(context_.dram, open_atom_v, session_ptr(session));
    if (!added) return std::unexpected(added.error());
    if (const auto status = added->get(); !status) return std::unexpected(status.error());
  }
  auto actor = ask<session_actor>(context_.node, open_atom_v, session_ptr(session));
  if (!actor) return std::unexpected(actor.error());
  auto doorbell = doorbells_->watch(
      session->submit_doorbell.get(),
      [session, target = *actor](std::uint32_t) {
        if (session->take_bell()) caf::anon_send(target, bell_atom_v);
      },
      /*edge=*/true);
  if (!doorbell) return std::unexpected(doorbell.error());
  attached made{session, *actor, *doorbell, 0, socket, false};
  caf::anon_send(*actor, bell_atom_v);  // arms the ring, or finds what a dead worker left in it
  sessions_.emplace(number, std::move(made));
  auto death =
      sockets_->watch(session->pidfd.get(), [this, number](std::uint32_t) { end_session(number, "process died"); });
  if (!death) return std::unexpected(death.error());
  sessions_.at(number).death = *death;
  if (recovered) session->ring();
  return {};
}

result<void> server::reattach(connection& from, const local::frame& frame) {
  const auto request = local::decode_reattach(frame.payload);
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
  auto back = ask<outcome>(context_.dram, back_atom_v, request->session,
                           std::make_shared<const std::vector<local::held_block>>(request->held));
  if (!back) return std::unexpected(back.error());
  if (const auto status = back->get(); !status) return std::unexpected(status.error());
  byte_writer reply;
  reply.put(context_.epoch);
  return local::send_frame(from.socket.get(), local::reply_to(frame.header, local::frame_type::reattach_reply),
                           reply.bytes(), {}, soon());
}

result<void> server::send_slabs(connection& from, const local::frame& frame) {
  const auto session = sessions_.find(from.session);
  if (session == sessions_.end()) return fail(error_code::malformed, "slabs before attach");
  auto indices = local::decode_slab_query(frame.payload);
  if (!indices) return std::unexpected(indices.error());
  auto handles = ask<slab_handles_ptr>(context_.dram, handles_atom_v, session->second.resources->instance, *indices);
  if (!handles) return std::unexpected(handles.error());
  return local::send_frame(from.socket.get(), local::reply_to(frame.header, local::frame_type::slabs_reply),
                           local::encode_slabs((*handles)->slabs), local::numbers_of((*handles)->fds), soon());
}

void server::end_session(std::uint64_t number, std::string_view why) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  const attached gone = std::move(found->second);
  sessions_.erase(found);
  doorbells_->unwatch(gone.doorbell);
  sockets_->unwatch(gone.death);
  if (const auto freed = ask<outcome>(context_.node, release_atom_v, number); !freed) {
    log_error(logger("server"), "a session was not released",
              {{"session", number}, {"reason", freed.error().describe()}});
  }
  if (const auto dropped = context_.keeper.drop(local::entry_kind::session, number); !dropped) {
    log_warn(logger("server"), "the keeper did not drop a session", {{"reason", dropped.error().describe()}});
  }
  if (const auto open = connections_.find(gone.socket); open != connections_.end()) open->second.session = 0;
  log_info(logger("server"), "session ended", {{"session", number}, {"pid", gone.resources->pid}, {"why", why}});
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

result<std::string> server::clear(const admin_request& request) {
  if (request.all == request.instance.has_value() || (request.instance && request.instance->empty())) {
    return fail(error_code::invalid_argument, "clear needs either an `instance`, or `all`");
  }
  auto cleared = ask<outcome>(context_.dram, wipe_atom_v, request.instance.value_or(std::string()));
  if (!cleared) return std::unexpected(cleared.error());
  const auto count = cleared->get();
  if (!count) return std::unexpected(count.error());
  return json({{"cleared", *count}}).dump();
}

result<std::string> server::corrupt() {
  if (!config()->debug.enabled) {
    return fail(error_code::permission_denied, "this node alters no blocks: it runs without debug.enabled=true");
  }
  auto altered = ask<outcome>(context_.dram, corrupt_atom_v);
  if (!altered) return std::unexpected(altered.error());
  const auto count = altered->get();
  if (!count) return std::unexpected(count.error());
  return json({{"altered", *count}}).dump();
}

result<std::string> server::admin(const connection& from, std::string_view text) {
  const auto request = parse_admin_request(text);
  if (!request) return std::unexpected(request.error());
  const std::string& command = request->command;
  if (command == "status" || command == "stats") {
    if (!may_attach(from) && !may_administrate(from))
      return fail(error_code::permission_denied, "you may not see the status");
    return status();
  }
  if (!may_administrate(from)) {
    return fail(error_code::permission_denied,
                "`" + printable(command) + "` is for the daemon's user, root, or members of auth.admin_gid");
  }
  if (command == "clear") return clear(*request);
  if (command == "corrupt") return corrupt();
  if (command == "session_kill") {
    if (!request->id) return fail(error_code::invalid_argument, "session_kill needs a number as `id`");
    if (auto killed = kill_session(*request->id); !killed) return std::unexpected(killed.error());
    return json({{"killed", *request->id}}).dump();
  }
  if (command == "upgrade") {
    if (auto asked = context_.keeper.ask_upgrade(); !asked) return std::unexpected(asked.error());
    return json({{"upgrading", true}}).dump();
  }
  if (command == "log_level") {
    if (!request->level) return fail(error_code::invalid_argument, "log_level needs a `level`, such as info");
    if (auto set = set_levels(*request->level); !set) return std::unexpected(set.error());
    return json({{"level", *request->level}}).dump();
  }
  return fail(error_code::invalid_argument, "unknown command `" + printable(command) + "`");
}

}  // namespace cenote
