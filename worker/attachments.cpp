#include "worker/attachments.hpp"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>

#include "actors/ask.hpp"
#include "config/logging.hpp"
#include "core/fair_share.hpp"
#include "core/random_number.hpp"
#include "memory/instance_memory.hpp"
#include "worker/access.hpp"

namespace cenote {

namespace {

constexpr auto actor_deadline = std::chrono::seconds(5);
constexpr auto drop_deadline = std::chrono::seconds(1);
constexpr std::uint32_t default_pins = 8192;

}  // namespace

template <class Answer, class Actor, class... Arguments>
result<Answer> attachments::ask(const Actor& whom, Arguments... arguments) {
  return cenote::ask<Answer>(context_.system, actor_deadline, whom, std::move(arguments)...);
}

// ---------------------------------------------------------------------------------------------- attach

result<void> attachments::check_limits(const connection& connection, const config::node_config& now) const {
  if (sessions_.size() >= now.node.max_sessions) {
    return fail(error_code::limit_exceeded,
                std::to_string(sessions_.size()) + " sessions are attached, node.max_sessions allows no more");
  }
  const auto own = static_cast<std::uint64_t>(std::ranges::count_if(
      sessions_, [&](const auto& each) { return each.second.resources->uid == connection.peer.uid; }));
  if (own >= now.limits.sessions_per_uid) {
    return fail(error_code::limit_exceeded, "uid " + std::to_string(connection.peer.uid) + " has " +
                                                std::to_string(own) +
                                                " sessions, limits.sessions_per_uid allows no more");
  }
  if (!may_administrate(connection, now) && own >= fair_share(now.node.max_sessions, sessions_.size() - own)) {
    return fail(error_code::limit_exceeded, "uid " + std::to_string(connection.peer.uid) + " has " +
                                                std::to_string(own) + " of the node's " +
                                                std::to_string(now.node.max_sessions) +
                                                " sessions, and must leave as many to others; raise "
                                                "node.max_sessions");
  }
  return {};
}

result<void> attachments::check_client(const connection& connection, const local::attach_request& request) const {
  const config_ptr now = config_.get();
  if (auto allowed = check_group(connection, request, *now); !allowed) return allowed;
  if (auto allowed = check_limits(connection, *now); !allowed) return allowed;
  const std::uint32_t most = std::min<std::uint32_t>(now->session.max_pins, memory::session_memory::max_pin_slots);
  if (request.max_pins > most) {
    return fail(error_code::limit_exceeded, "max_pins is " + std::to_string(request.max_pins) +
                                                ", session.max_pins allows " + std::to_string(most));
  }
  return {};
}

result<blocks::instance_number> attachments::find_or_make_instance(const instance_spec& spec, uid_t owner) {
  auto found = ask<outcome>(context_.dram, find_atom_v, spec_ptr(std::make_shared<const instance_spec>(spec)),
                            static_cast<std::uint32_t>(owner));
  if (!found) return std::unexpected(found.error());
  const auto number = found->get();
  if (!number) return std::unexpected(number.error());
  return *number != 0 ? static_cast<blocks::instance_number>(*number) : make_instance(spec, owner);
}

result<blocks::instance_number> attachments::make_instance(const instance_spec& spec, uid_t owner) {
  if (context_.next_instance == ~blocks::instance_number{0}) {  // the next number would be another one's
    return fail(error_code::limit_exceeded, "the node has no numbers left for instances; restart it");
  }
  auto memory = memory::instance_memory::create(spec.id);
  if (!memory) return std::unexpected(memory.error());
  const blocks::instance_number fresh = context_.next_instance++;
  byte_writer meta;
  encode(meta, spec);
  meta.put(static_cast<std::uint32_t>(owner));
  const std::array fds{memory->index.file().fd().get(), memory->versions.file().fd().get()};
  if (auto kept = context_.keeper.put(local::entry_kind::instance, fresh, meta.bytes(), fds); !kept) {
    (void)context_.keeper.drop(local::entry_kind::instance, fresh);  // it may have it, and only not have said so
    return std::unexpected(kept.error());
  }
  auto made = std::make_shared<new_instance>(new_instance{
      fresh, spec, std::move(memory->index), std::move(memory->versions), static_cast<std::uint32_t>(owner)});
  auto added = ask<outcome>(context_.dram, add_atom_v, made);
  if (!added) return std::unexpected(added.error());
  if (const auto status = added->get(); !status) {
    (void)context_.keeper.drop(local::entry_kind::instance, fresh);
    return std::unexpected(status.error());
  }
  log_info(logger("server"), "instance made", {{"instance", spec.id}, {"group", spec.paying_group()}});
  return fresh;
}

result<void> attachments::attach(connection& connection, const local::frame& frame) {
  if (draining_) return fail(error_code::not_running, "the node is shutting down");
  if (connection.session != 0) return fail(error_code::malformed, "this connection has a session already");
  if (!may_attach(connection, *config_.get())) return std::unexpected(may_not_attach(connection.peer.uid));
  auto request = local::decode_attach(frame.payload, frame.header.minor);
  if (!request) return std::unexpected(request.error());
  end_unheard_of(connection, *request);
  if (auto allowed = check_client(connection, *request); !allowed) return allowed;
  auto instance = find_or_make_instance(request->spec, connection.peer.uid);
  if (!instance) return std::unexpected(instance.error());
  auto shared = ask<descriptors_ptr>(context_.dram, describe_atom_v, *instance);
  if (!shared) return std::unexpected(shared.error());
  if (!(*shared)->index) return fail(error_code::system, "this process is out of file descriptors");

  auto made = make_resources(connection, *request);
  if (!made) return std::unexpected(made.error());
  const std::shared_ptr<session_resources>& session = made->session;
  session->instance = *instance;
  auto opened = keep_session(context_.keeper, *session);
  if (opened) opened = open(session, connection.socket.get());
  if (!opened) {
    release(session->number);  // whatever was done of it, or is still on its way
    return opened;
  }
  connection.session = session->number;
  log_info(logger("server"), "attached",
           {{"session", session->number}, {"pid", session->pid}, {"instance", request->spec.id}});

  const local::attach_reply reply{session->number, session->secret, context_.epoch, session->pin_slots};
  const std::array fds{session->segment.fd().get(), session->submit_doorbell.get(), made->ear.get(),
                       (*shared)->index.get(), (*shared)->versions.get()};
  auto sent =
      connection.out.send(local::reply_to(frame.header, local::frame_type::attach_reply), local::encode(reply), fds);
  if (!sent) end(session->number, "its client left before it was attached");
  connection.attach_unread = sent.has_value();
  return sent;
}

/// What an earlier attempt of the same call made: its worker died before the client had the answer.
void attachments::end_unheard_of(const connection& connection, const local::attach_request& request) {
  if (request.call == 0) return;
  const auto made = std::ranges::find_if(sessions_, [&](const auto& each) {
    return each.second.resources->attach_call == request.call && each.second.resources->pid == connection.peer.pid;
  });
  if (made != sessions_.end()) end(made->first, "its client never heard of it");
}

/// The memory and identity of a new session, but for its instance.
result<attachments::fresh_session> attachments::make_resources(const connection& connection,
                                                               const local::attach_request& request) {
  auto pidfd = local::pidfd_of(connection.socket.get());
  if (!pidfd) return std::unexpected(pidfd.error());
  auto session = std::make_shared<session_resources>();
  session->number = number_session();
  session->secret = random_number();
  session->client_name = request.client_name;
  session->attach_call = request.call;
  session->pid = connection.peer.pid;
  session->uid = connection.peer.uid;
  session->gid = connection.peer.gid;
  session->attached = std::chrono::system_clock::now();
  session->pin_slots =
      request.max_pins != 0 ? request.max_pins : std::min<std::uint32_t>(default_pins, config_.get()->session.max_pins);
  session->pidfd = std::move(*pidfd);
  auto ear = make_session(*session);
  if (!ear) return std::unexpected(ear.error());
  return fresh_session{std::move(session), std::move(*ear)};
}

/// Epoch (high half) | running number (low half). Block records know sessions by the low half alone, so that of no two
/// living ones is equal: it goes on behind those of earlier workers, around its end, and past those in use.
std::uint64_t attachments::number_session() {
  const auto is_taken = [&](const auto& each) { return static_cast<std::uint32_t>(each.first) == last_session_; };
  do ++last_session_;
  while (last_session_ == 0 || std::ranges::any_of(sessions_, is_taken));
  return (context_.epoch << 32) | last_session_;
}

result<void> attachments::open(const std::shared_ptr<session_resources>& session, int socket) {
  if (sessions_.contains(session->number)) {
    return fail(error_code::internal, "there is a session " + std::to_string(session->number) + " already");
  }
  memory::shared_store(session->view.header().worker_epoch, context_.epoch, std::memory_order_release,
                       "session.worker_epoch"_point);
  memory::shared_store(session->view.header().wants_checksums, context_.has_lower ? 1 : 0, std::memory_order_relaxed,
                       "session.wants_checksums"_point);
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
  auto death = sockets_.watch(session->pidfd.get(), [this, number](std::uint32_t) { end(number, "process died"); });
  if (!death) {
    context_.path.unwatch(*doorbell);
    return std::unexpected(death.error());
  }
  sessions_.emplace(number, attached{session, *actor, *doorbell, *death, socket, false});
  caf::anon_send(*actor, doorbell_atom_v);  // arms the ring, or finds what a dead worker left in it
  if (recovered) session->ring();
  return {};
}

void attachments::adopt(const std::shared_ptr<session_resources>& session) {
  const std::uint64_t number = session->number;
  last_session_ = std::max(last_session_, static_cast<std::uint32_t>(number));
  if (const auto opened = open(session, -1); !opened) {
    log_error(logger("server"), "a session was not taken over",
              {{"session", number}, {"reason", opened.error().describe()}});
  }
}

// ---------------------------------------------------------------------------------------------- reattach, slabs

result<void> attachments::reattach(connection& connection, const local::frame& frame) {
  const auto request = local::decode_reattach(frame.payload, frame.header.minor);
  if (!request) return std::unexpected(request.error());
  const auto found = sessions_.find(request->session);
  if (found == sessions_.end() || found->second.resources->secret != request->secret ||
      found->second.resources->pid != connection.peer.pid) {
    return fail(error_code::closed, "the node does not know this session; attach again");
  }
  if (found->second.killed) return fail(error_code::session_killed, "the operator ended this session");
  if (connection.session != 0 && connection.session != request->session) {
    return fail(error_code::malformed, "this connection has another session");
  }
  const int before = found->second.socket;
  found->second.socket = connection.socket.get();
  connection.session = request->session;
  if (before >= 0 && before != connection.socket.get()) hooks_.replaced(before);
  // A list that was made before this worker began may lack what its predecessor handed out in between.
  const bool whole = frame.header.minor < 3 || request->listed_in == context_.epoch;
  auto back = ask<outcome>(context_.dram, reattach_atom_v, request->session,
                           whole ? std::make_shared<const std::vector<local::held_block>>(request->held) : nullptr);
  if (!back) return std::unexpected(back.error());
  if (const auto status = back->get(); !status) return std::unexpected(status.error());
  byte_writer reply;
  reply.put(context_.epoch);
  return connection.out.send(local::reply_to(frame.header, local::frame_type::reattach_reply), std::move(reply).take());
}

result<void> attachments::send_slabs(connection& connection, const local::frame& frame) {
  const auto session = sessions_.find(connection.session);
  if (session == sessions_.end()) return fail(error_code::malformed, "slabs before attach");
  auto indices = local::decode_slab_query(frame.payload);
  if (!indices) return std::unexpected(indices.error());
  auto handles = ask<slab_handles_ptr>(context_.dram, handles_atom_v, session->second.resources->instance, *indices);
  if (!handles) return std::unexpected(handles.error());
  return connection.out.send(local::reply_to(frame.header, local::frame_type::slabs_reply),
                             local::encode_slabs((*handles)->slabs), local::numbers_of((*handles)->fds));
}

// ---------------------------------------------------------------------------------------------- end

void attachments::end(std::uint64_t number, std::string_view why) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  const bool is_written = found->second.resources->view.header().device_writes.load(std::memory_order_acquire) != 0;
  if (is_written && !found->second.set_aside_until) return set_aside(number, found->second, why);
  const attached gone = std::move(found->second);
  sessions_.erase(found);
  context_.path.unwatch(gone.doorbell);
  sockets_.unwatch(gone.death);
  release(number);
  if (gone.socket >= 0) hooks_.ended(gone.socket);
  log_info(logger("server"), "session ended", {{"session", number}, {"pid", gone.resources->pid}, {"why", why}});
}

/// The end of a process ends what it wrote, but not what it told a GPU to write: the driver's last close may come
/// later, or a child may have inherited the GPU's files.
void attachments::set_aside(std::uint64_t number, attached& session, std::string_view why) {
  const auto patience = config_.get()->gpu.quarantine;
  session.set_aside_until = std::chrono::steady_clock::now() + patience;
  sockets_.unwatch(std::exchange(session.death, 0));
  caf::anon_send(context_.dram, disconnect_atom_v, number);  // free are its keys and what it was not writing
  log_info(logger("server"), "session set aside: a device may still write for it",
           {{"session", number},
            {"pid", session.resources->pid},
            {"why", why},
            {"seconds", std::chrono::duration<double>(patience).count()}});
}

void attachments::end_set_aside() {
  std::vector<std::uint64_t> over;
  for (const auto& [number, each] : sessions_) {
    if (each.set_aside_until && std::chrono::steady_clock::now() >= *each.set_aside_until) over.push_back(number);
  }
  for (const std::uint64_t number : over) end(number, "its device has had its time");
}

/// Of the node's actors and the keeper. What timed out before may still be carried out: this comes behind it.
void attachments::release(std::uint64_t number) {
  if (const auto freed = ask<outcome>(context_.node, release_atom_v, number); !freed) {
    log_error(logger("server"), "a session was not released",
              {{"session", number}, {"reason", freed.error().describe()}});
    // A question that nobody heard in time is not asked any more; releasing twice does no harm.
    if (freed.error().code() == error_code::deadline_exceeded) unreleased_.push_back(number);
  }
  drop_entry(number);
}

void attachments::drop_entry(std::uint64_t number) {
  const auto dropped = context_.keeper.drop(local::entry_kind::session, number, drop_deadline);
  if (dropped) return;
  log_warn(logger("server"), "the keeper did not drop a session", {{"reason", dropped.error().describe()}});
  if (dropped.error().code() == error_code::deadline_exceeded) undropped_.push_back(number);  // tried again
}

void attachments::retry() {
  end_set_aside();
  for (const std::uint64_t number : std::exchange(undropped_, {})) drop_entry(number);
  for (const std::uint64_t number : std::exchange(unreleased_, {})) release(number);
}

void attachments::connection_closed(std::uint64_t number, int socket) {
  const auto session = sessions_.find(number);
  if (session == sessions_.end() || session->second.socket != socket) return;
  session->second.socket = -1;
  caf::anon_send(context_.dram, disconnect_atom_v, number);
}

void attachments::drain() {
  draining_ = true;
  for (const auto& [number, each] : sessions_) {
    each.resources->set_phase(memory::session_phase::draining);
    each.resources->ring();
  }
}

result<void> attachments::kill(std::uint64_t number) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) {
    return fail(error_code::invalid_argument, "no session " + std::to_string(number) + "; `cenote status` lists them");
  }
  found->second.killed = true;
  found->second.resources->set_phase(memory::session_phase::killed);
  found->second.resources->ring();
  caf::anon_send(context_.dram, disconnect_atom_v, number);
  // Only the end of the process proves that it neither reads nor writes any more.
  const pid_t pid = found->second.resources->pid;
  if (::syscall(SYS_pidfd_send_signal, found->second.resources->pidfd.get(), SIGKILL, nullptr, 0) != 0) {
    return fail(error_code::permission_denied, "session " + std::to_string(number) +
                                                   " is refused from now on, but its blocks stay until its process " +
                                                   std::to_string(pid) + " ends: the daemon may not kill it");
  }
  return {};
}

void attachments::end_suspect(std::uint64_t number) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  const session_resources& session = *found->second.resources;
  log_error(logger("server"), "workers died of what this session asked for: its process is ended",
            {{"session", number}, {"pid", session.pid}, {"client", session.client_name}});
  if (const auto killed = kill(number); !killed) {
    log_error(logger("server"), "the process of a session was not ended",
              {{"session", number}, {"reason", killed.error().describe()}});
  }
}

}  // namespace cenote
