#include "worker/attachments.hpp"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <string>

#include "actors/ask.hpp"
#include "actors/device_news.hpp"
#include "cluster/agreement.hpp"
#include "config/logging.hpp"
#include "core/device_spec.hpp"
#include "core/machine_choice.hpp"
#include "core/random_number.hpp"
#include "core/shared_bound.hpp"
#include "core/stored_identity.hpp"
#include "core/text.hpp"
#include "transport/local/trace_spans.hpp"
#include "worker/access.hpp"

namespace cenote {

namespace {

constexpr auto actor_deadline = std::chrono::seconds(5);
constexpr auto drop_deadline = std::chrono::seconds(1);
constexpr std::uint32_t default_pins = 8192;

/// Its client has closed it.
bool has_departed(const session_resources& session) noexcept {
  return session.view.header().departure.load(std::memory_order_acquire) != 0;
}

bool has_ended(int pidfd) {
  pollfd process{pidfd, POLLIN, 0};
  return ::poll(&process, 1, 0) == 1;
}

}  // namespace

/// Answers the connection by `send`, once the actor has answered, or at the deadline.
template <class Answer, class Actor, class... Arguments>
void attachments::ask_for(connection& waits, const local::frame_header& request,
                          std::function<result<void>(connection&, const Answer&)> send, const Actor& actor,
                          Arguments... arguments) {
  ask_then<Answer>(
      context_.system, [] { return true; }, await_answer<Answer>(waits, request, std::move(send)), actor,
      std::move(arguments)...);
}

/// Has the connection wait for an answer, which any thread may give, until the deadline: `send` passes it on.
template <class Answer>
std::function<void(const result<Answer>&)> attachments::await_answer(
    connection& client, const local::frame_header& request,
    std::function<result<void>(connection&, const Answer&)> send) {
  const std::uint64_t ticket = ++last_ticket_;
  deferred_.emplace(ticket, deferred{defer(client, request), local::event_loop::clock::now() + actor_deadline});
  const auto take = [this, ticket, send = std::move(send)](const result<Answer>& answer) {
    const auto asked = deferred_.extract(ticket);
    if (asked.empty()) return;
    hooks_.answer(asked.mapped().client, [&](connection& waiting) -> result<void> {
      return answer ? send(waiting, *answer) : std::unexpected(answer.error());
    });
  };
  return on_loop<Answer>(take);
}

/// Passes an answer, which any thread may give, on to the loop's thread; it may come when server and loop are gone.
template <class Answer, class Take>
std::function<void(const result<Answer>&)> attachments::on_loop(Take take) {
  return [take = std::move(take), loop = std::weak_ptr(sockets_)](const result<Answer>& answer) {
    if (const auto still = loop.lock()) still->post([take, answer] { take(answer); });
  };
}

// ---------------------------------------------------------------------------------------------- attach

/// Those that are being made or taken over, too.
std::uint64_t attachments::sessions_of(uid_t uid) const {
  const auto has_owner = [&](const auto& each) {
    return each.second.resources != nullptr && each.second.resources->uid == uid;
  };
  return static_cast<std::uint64_t>(
      std::ranges::count_if(sessions_, has_owner) + std::ranges::count_if(coming_, has_owner) +
      std::ranges::count_if(openings_, [&](const auto& each) { return each.second.peer.uid == uid; }));
}

/// Those that are being made or taken over, and those that are set aside, too.
share_usage attachments::sessions_on(const std::string& device, const share_holder& holder) const {
  const auto named = parse_device(device);
  const std::string& name = named ? named->name : device;
  share_usage usage;
  const auto add = [&](std::uint32_t uid, const std::string& group) {
    ++usage.all;
    usage.user += uid == holder.uid ? 1U : 0U;
    usage.group += uid == holder.uid && group == holder.group ? 1U : 0U;
  };
  const auto tier = std::ranges::find(devices_, name, [](const auto& each) { return each.second.device; });
  const auto add_session = [&](const session_resources& session) {
    if (tier == devices_.end() || tier_of(session.instance) != tier->first) return;
    add(static_cast<std::uint32_t>(session.uid), session.instance_group);
  };
  for (const auto& [number, each] : sessions_) add_session(*each.resources);
  for (const auto& [number, each] : coming_) {
    if (each.resources) add_session(*each.resources);
  }
  for (const auto& [ticket, each] : openings_) {
    if (each.device == name) add(static_cast<std::uint32_t>(each.peer.uid), each.request.spec.instance_group);
  }
  return usage;
}

result<void> attachments::check_limits(const connection& connection, const local::attach_request& request,
                                       const config::node_config& now) const {
  const std::size_t all = sessions_.size() + coming_.size() + openings_.size();
  if (all >= now.node.max_sessions) {
    return fail(error_code::limit_exceeded,
                std::to_string(all) + " sessions are attached, node.max_sessions allows no more");
  }
  const std::uint64_t own = sessions_of(connection.peer.uid);
  if (own >= now.limits.sessions_per_uid) {
    return fail(error_code::limit_exceeded, "uid " + std::to_string(connection.peer.uid) + " has " +
                                                std::to_string(own) +
                                                " sessions, limits.sessions_per_uid allows no more");
  }
  if (may_administrate(connection, now)) return {};
  const share_holder holder{static_cast<std::uint32_t>(connection.peer.uid), request.spec.instance_group};
  auto refusal =
      share_refusal(node_bound::sessions, now.node.max_sessions, {.all = all, .user = own, .group = 0}, holder);
  if (!refusal && !request.device.empty()) {
    refusal =
        share_refusal(node_bound::device_sessions, now.node.max_sessions, sessions_on(request.device, holder), holder);
  }
  return refusal ? result<void>(std::unexpected(*refusal)) : result<void>();
}

result<void> attachments::check_client(const connection& connection, const local::attach_request& request) const {
  const config_ptr now = config_.get();
  if (auto allowed = check_group(connection, request, *now); !allowed) return allowed;
  if (auto allowed = check_limits(connection, request, *now); !allowed) {
    if (coming_.empty()) return allowed;
    return fail(error_code::node_restarting, "sessions are being taken over; " + allowed.error().message());
  }
  const std::uint32_t most = std::min<std::uint32_t>(now->session.max_pins, memory::session_memory::max_pin_slots);
  if (request.max_pins > most) {
    return fail(error_code::limit_exceeded, "max_pins is " + std::to_string(request.max_pins) +
                                                ", session.max_pins allows " + std::to_string(most));
  }
  return {};
}

template <class Answer, class Actor, class... Arguments>
void attachments::ask_for(std::uint64_t ticket, void (attachments::*next)(opening_map::iterator, const Answer&),
                          const Actor& whom, Arguments... arguments) {
  opening& waiting = openings_.at(ticket);
  waiting.deadline = local::event_loop::clock::now() + actor_deadline;
  ask_then<Answer>(
      context_.system, [wanted = waiting.wanted] { return !wanted->is_given_up; },
      on_loop<Answer>([this, ticket, next](const result<Answer>& came) { hear(ticket, next, came); }), whom,
      std::move(arguments)...);
}

template <class Answer>
void attachments::hear(std::uint64_t ticket, void (attachments::*next)(opening_map::iterator, const Answer&),
                       const result<Answer>& answer) {
  const auto found = openings_.find(ticket);
  if (found == openings_.end()) return;
  if (found->second.has_ended) return discard(found);
  if (!answer) return refuse(found, answer.error());
  (this->*next)(found, *answer);
}

/// An answer that does not come in time may come later: an instance then goes as every empty one does.
void attachments::end_late() {
  const auto now = local::event_loop::clock::now();
  const auto is_late = [&](const auto& each) { return each.second.deadline <= now; };
  for (auto each = std::ranges::find_if(deferred_, is_late); each != deferred_.end();
       each = std::ranges::find_if(deferred_, is_late)) {
    const asker to = deferred_.extract(each).mapped().client;
    hooks_.answer(to, [](connection&) -> result<void> {
      return fail(error_code::deadline_exceeded, "the node is too busy to answer");
    });
  }
  std::vector<std::uint64_t> late;
  for (const auto& [ticket, each] : openings_) {
    if (each.deadline <= now) late.push_back(ticket);
  }
  for (const std::uint64_t ticket : late) {
    const auto found = openings_.find(ticket);
    if (found == openings_.end()) continue;
    const opening& waiting = found->second;
    const bool has_session = waiting.session != nullptr;
    const std::string what = has_session ? "" : "instance `" + waiting.request.spec.id + "` is not ready after 5 s; ";
    if (!waiting.has_ended)
      refuse(found, error(error_code::deadline_exceeded, what + "the node is too busy to answer"));
    if (has_session) discard(found);
  }
}

result<void> attachments::attach(connection& connection, const local::frame& frame) {
  auto begun = begin_attach(connection, frame);
  if (!begun) ++refusals_;
  return begun;
}

result<void> attachments::begin_attach(connection& connection, const local::frame& frame) {
  if (draining_) return std::unexpected(*draining_);
  if (connection.session != 0) return fail(error_code::malformed, "this connection has a session already");
  if (!may_attach(connection, *config_.get())) return std::unexpected(may_not_attach(connection.peer.uid));
  auto request = local::decode_attach(frame.payload, frame.header.minor);
  if (!request) return std::unexpected(request.error());
  auto pidfd = local::pidfd_of(connection.socket.get());
  if (!pidfd) return std::unexpected(pidfd.error());
  end_departed();
  if (auto ended = end_unheard_of(local::identify(pidfd->get(), connection.peer), *request); !ended) return ended;
  if (auto allowed = check_client(connection, *request); !allowed) return allowed;
  auto device = find_device(*request);
  if (!device) return std::unexpected(device.error());

  const std::uint64_t ticket = ++last_ticket_;
  opening& begun = openings_[ticket];
  begun.to = defer(connection, frame.header);
  begun.peer = connection.peer;
  begun.request = std::move(*request);
  begun.pidfd = std::move(*pidfd);
  begun.wanted = std::make_shared<instance_request>();
  begun.wanted->spec = begun.request.spec;
  begun.wanted->owner = static_cast<std::uint32_t>(connection.peer.uid);
  begun.device = std::move(*device);
  const auto next = begun.device.empty() ? &attachments::instance_opened : &attachments::whole_opened;
  ask_for(ticket, next, context_.dram, open_instance_atom_v, instance_request_ptr(begun.wanted));
  return {};
}

/// The name of the device that it asks for; empty: none. Errors: as an attach to it is to be refused.
result<std::string> attachments::find_device(const local::attach_request& request) const {
  if (request.device.empty()) return std::string();
  const auto asked = parse_device(request.device);
  if (!asked) return std::unexpected(asked.error());
  const auto found = std::ranges::find(devices_, asked->name, [](const auto& each) { return each.second.device; });
  if (found == devices_.end()) {
    std::string all;
    for (const auto& [tier, each] : devices_) all += (all.empty() ? "" : ", ") + each.device;
    return fail(error_code::unsupported,
                "this node has no blocks on " + asked->name + "; " +
                    (all.empty() ? "it has none on devices, see gpu.devices" : "it has on " + all));
  }
  const device_news& its = found->second;
  if (its.phase == device_phase::opening)
    return fail(error_code::node_restarting, "the tier of " + its.device + " is being opened");
  if (its.phase == device_phase::away)
    return fail(error_code::closed, "the tier of " + its.device + " is away: " + its.why);
  if (auto share = instance_on_device({request.spec, request.part}, its.device); !share)
    return std::unexpected(share.error());
  return its.device;
}

/// DRAM, below the device, takes the instance: now what lies on the device.
void attachments::whole_opened(opening_map::iterator its, const opened_instance_ptr& whole) {
  opening& waiting = its->second;
  if (const auto opened = whole->status.get(); !opened) return refuse(its, opened.error());
  const auto device = std::ranges::find(devices_, waiting.device, [](const auto& each) { return each.second.device; });
  if (device == devices_.end() || !device->second.stack || device->second.phase != device_phase::ready)
    return refuse(its, error(error_code::closed, "the tier of " + waiting.device + " is away"));
  auto share = std::make_shared<const instance_share>(instance_share{waiting.request.spec, waiting.request.part});
  auto wanted = std::make_shared<instance_request>();
  wanted->owner = waiting.wanted->owner;
  wanted->spec = instance_on_device(*share, waiting.device).value();
  wanted->share = std::move(share);
  waiting.wanted = std::move(wanted);
  ask_for(its->first, &attachments::instance_opened, device->second.stack->top, open_instance_atom_v,
          instance_request_ptr(waiting.wanted));
}

void attachments::instance_opened(opening_map::iterator its, const opened_instance_ptr& instance) {
  opening& waiting = its->second;
  if (const auto opened = instance->status.get(); !opened) return refuse(its, opened.error());
  waiting.instance = instance;
  if (const auto made = make_resources(waiting); !made) return refuse(its, made.error());
  if (const auto kept = keep_session(context_.keeper, *waiting.session); !kept) {
    refuse(its, kept.error());
    return discard(its);
  }
  prepare(*waiting.session);
  const auto top = top_of(*waiting.session);
  ask_for(its->first, &attachments::session_added, top, open_atom_v, session_ptr(waiting.session));
}

void attachments::session_added(opening_map::iterator its, const outcome& added) {
  if (const auto status = added.get(); !status) {
    refuse(its, status.error());
    return discard(its);
  }
  ask_for(its->first, &attachments::session_opened, context_.node, open_atom_v, session_ptr(its->second.session));
}

void attachments::session_opened(opening_map::iterator its, const session_actor& actor) {
  opening& waiting = its->second;
  const auto device = devices_.find(tier_of(waiting.session->instance));
  if (device != devices_.end() && device->second.phase == device_phase::away) {  // it failed meanwhile
    refuse(its, error(error_code::closed, "the tier of " + waiting.device + " is away: " + device->second.why));
    return discard(its);
  }
  if (const auto begun = begin(waiting.session, actor, waiting.to.socket); !begun) {
    refuse(its, begun.error());
    return discard(its);
  }
  opening ready = std::move(waiting);
  openings_.erase(its);
  log_info(logger("server"), "attached",
           {{"session", ready.session->number}, {"pid", ready.session->pid}, {"instance", ready.request.spec.id}});
  hooks_.answer(ready.to, [&](connection& connection) { return send_session(connection, ready); });
}

result<void> attachments::send_session(connection& connection, opening& ready) {
  const session_resources& session = *ready.session;
  connection.session = session.number;
  const local::attach_reply reply{session.number, session.secret, context_.epoch, session.pin_slots};
  const std::array fds{session.segment.fd().get(), session.submit_doorbell.get(), ready.ear.get(),
                       ready.instance->index.get(), ready.instance->versions.get()};
  auto sent = connection.out.send(local::reply_to(ready.to.request, local::frame_type::attach_reply),
                                  local::encode(reply), fds);
  if (!sent) end(session.number, "its client left before it was attached");
  connection.attach_unread = sent.has_value();
  return sent;
}

/// Answers now. What the open question does for a session comes first: that is taken back when it is answered.
void attachments::refuse(opening_map::iterator its, const error& why) {
  opening& refused = its->second;
  ++refusals_;
  refused.has_ended = true;
  refused.wanted->is_given_up = true;
  const asker to = refused.to;
  if (!refused.session) openings_.erase(its);
  hooks_.answer(to, [&](connection&) -> result<void> { return std::unexpected(why); });
}

/// Whatever was done of its session, or is still on its way.
void attachments::discard(opening_map::iterator its) {
  const auto session = its->second.session;
  openings_.erase(its);
  release(session->number);
}

/// Its session has the pidfd once that is made.
local::process_identity attachments::process_of(const opening& client) {
  const unique_fd& pidfd = client.session ? client.session->pidfd : client.pidfd;
  return local::identify(pidfd.get(), client.peer);
}

local::process_identity attachments::process_of(const session_resources& session) {
  return local::identify(session.pidfd.get(), {.pid = session.pid, .uid = session.uid, .gid = session.gid});
}

/// What an earlier attempt of the same call made: its worker died before the client had the answer. One that is being
/// taken over is ended when the client asks again.
result<void> attachments::end_unheard_of(const local::process_identity& client, const local::attach_request& request) {
  if (request.call == 0) return {};
  const auto is_made_by_call = [&](const auto& entry) {
    const auto& session = entry.second.resources;
    return session && session->attach_call == request.call && local::may_be_one_process(process_of(*session), client);
  };
  if (std::ranges::any_of(coming_, is_made_by_call))
    return fail(error_code::node_restarting, "the session of an earlier attempt is being taken over");
  const auto made = std::ranges::find_if(sessions_, is_made_by_call);
  if (made != sessions_.end()) end(made->first, "its client never heard of it");
  const auto under_way = std::ranges::find_if(openings_, [&](const auto& each) {
    return !each.second.has_ended && each.second.request.call == request.call &&
           local::may_be_one_process(process_of(each.second), client);
  });
  if (under_way != openings_.end()) refuse(under_way, error(error_code::closed, "its client asked again"));
  return {};
}

/// The memory and identity of a new session.
result<void> attachments::make_resources(opening& from) {
  auto session = std::make_shared<session_resources>();
  session->number = number_session();
  session->secret = random_number();
  session->instance = from.instance->number;
  session->client_name = from.request.client_name;
  session->identity = identity_of(from.request.spec);
  session->shared_identity = cluster::shared_identity_of(from.request.spec);
  session->instance_group = from.request.spec.instance_group;
  session->attach_call = from.request.call;
  session->pid = from.peer.pid;
  session->uid = from.peer.uid;
  session->gid = from.peer.gid;
  session->attached = std::chrono::system_clock::now();
  session->pin_slots = from.request.max_pins != 0
                           ? from.request.max_pins
                           : std::min<std::uint32_t>(default_pins, config_.get()->session.max_pins);
  session->pidfd = std::move(from.pidfd);
  auto ear = make_session(*session);
  if (!ear) return std::unexpected(ear.error());
  from.ear = std::move(*ear);
  from.session = std::move(session);
  return {};
}

/// Epoch (high half) | running number (low half). Block records know sessions by the low half alone, so that of no two
/// living ones is equal: it goes on behind those of earlier workers, around its end, and past those in use.
std::uint64_t attachments::number_session() {
  const auto is_taken = [&](const auto& each) { return static_cast<std::uint32_t>(each.first) == last_session_; };
  const auto is_promised = [&](const auto& each) {
    return each.second.session && static_cast<std::uint32_t>(each.second.session->number) == last_session_;
  };
  do ++last_session_;
  while (last_session_ == 0 || last_session_ >= first_guest_session || std::ranges::any_of(sessions_, is_taken) ||
         std::ranges::any_of(coming_, is_taken) || std::ranges::any_of(releasing_, is_taken) ||
         std::ranges::any_of(openings_, is_promised));
  return (context_.epoch << 32) | last_session_;
}

/// What its client reads before anything else. Nobody else stores there yet.
void attachments::prepare(const session_resources& session) const {
  memory::shared_store(session.view.header().worker_epoch, context_.epoch, std::memory_order_release,
                       "session.worker_epoch"_point);
  memory::shared_store(session.view.header().wants_checksums, context_.has_lower ? 1 : 0, std::memory_order_relaxed,
                       "session.wants_checksums"_point);
  const bool asks = context_.asks_tiers || tier_of(session.instance) != 0;
  memory::shared_store(session.view.header().asks_tiers, asks ? 1 : 0, std::memory_order_relaxed,
                       "session.asks_tiers"_point);
  memory::shared_store(session.view.header().wants_spans, context_.exporter ? 1 : 0, std::memory_order_relaxed,
                       "session.wants_spans"_point);
  session.view.hand_over(words_in_use());
}

/// Hands the worker's own choice of copies to all sessions when it has changed.
void attachments::hand_over_choice() {
  const choice_words choice = words_in_use();
  if (choice == std::exchange(last_choice_, choice)) return;
  for (const auto& [number, each] : sessions_) each.resources->view.hand_over(choice);
}

/// Tier and node know it: from now on its doorbell and its client's death are heard.
result<void> attachments::begin(const std::shared_ptr<session_resources>& session, const session_actor& actor,
                                int socket) {
  const std::uint64_t number = session->number;
  auto doorbell = context_.path.watch(session, actor);
  if (!doorbell) return std::unexpected(doorbell.error());
  auto death = sockets_->watch(session->pidfd.get(), [this, number](std::uint32_t) { end(number, "process died"); });
  if (!death) {
    context_.path.unwatch(*doorbell);
    return std::unexpected(death.error());
  }
  sessions_.emplace(number, attached{session, actor, *doorbell, *death, socket, false});
  caf::anon_send(actor, doorbell_atom_v);  // arms the ring, or finds what a dead worker left in it
  return {};
}

dram_tier_actor attachments::top_of(tier_number tier) const {
  const auto found = devices_.find(tier);
  if (tier == 0 || found == devices_.end() || !found->second.stack) return context_.dram;
  return found->second.stack->top;
}

dram_tier_actor attachments::top_of(const session_resources& session) const {
  return top_of(tier_of(session.instance));
}

void attachments::tell_disconnected(const session_resources& session) const {
  caf::anon_send(top_of(session), disconnect_atom_v, session.number);
}

void attachments::expect(tier_number tier, const std::vector<std::uint64_t>& sessions) {
  for (const std::uint64_t each : sessions) coming_.emplace(each, coming_session{.tier = tier});
}

void attachments::take_device(const device_news& news) {
  device_news& known = devices_[news.tier];
  learn(known, news);
  if (news.phase != device_phase::opening)
    std::erase_if(coming_, [&](const auto& each) { return each.second.tier == news.tier && !each.second.resources; });
  if (known.phase != device_phase::away) return;
  for (const auto& [number, each] : sessions_) {
    if (tier_of(each.resources->instance) != news.tier) continue;
    each.resources->set_phase(memory::session_phase::device_lost);
    each.resources->ring();
  }
}

/// The tier knows it already; the node's actor opens it.
void attachments::adopt(const std::shared_ptr<session_resources>& session) {
  const std::uint64_t number = session->number;
  if (static_cast<std::uint32_t>(number) < first_guest_session)
    last_session_ = std::max(last_session_, static_cast<std::uint32_t>(number));
  if (sessions_.contains(number))
    return log_error(logger("server"), "a session was not taken over",
                     {{"session", number}, {"reason", "there is one of this number already"}});
  coming_.insert_or_assign(number, coming_session{tier_of(session->instance), session});
  prepare(*session);
  ask_then<session_actor>(
      context_.system, [] { return true; },
      on_loop<session_actor>([this, session](const result<session_actor>& opened) { take_over(session, opened); }),
      context_.node, open_atom_v, session_ptr(session));
}

void attachments::take_over(const std::shared_ptr<session_resources>& session, const result<session_actor>& opened) {
  const std::uint64_t number = session->number;
  coming_.erase(number);
  const bool is_suspect = coming_suspects_.erase(number) > 0;
  if (const auto begun = opened ? begin(session, *opened, -1) : std::unexpected(opened.error()); !begun) {
    return log_error(logger("server"), "a session was not taken over",
                     {{"session", number}, {"reason", begun.error().describe()}});
  }
  session->ring();
  const auto writes = session->view.header().device_writes.load(std::memory_order_acquire);
  if (writes == memory::session_header::set_aside) return end(number, "it was set aside before");
  if (has_departed(*session)) return end(number, "its client left");
  if (is_suspect) end_suspect(number);
  const auto device = devices_.find(tier_of(session->instance));
  const bool is_away = device != devices_.end() && device->second.phase == device_phase::away;
  if (!is_away && !draining_) return;
  session->set_phase(is_away ? memory::session_phase::device_lost : memory::session_phase::draining);
  session->ring();
}

// ---------------------------------------------------------------------------------------------- reattach, slabs

result<void> attachments::reattach(connection& connection, const local::frame& frame) {
  const auto request = local::decode_reattach(frame.payload, frame.header.minor);
  if (!request) return std::unexpected(request.error());
  const auto found = sessions_.find(request->session);
  if (found == sessions_.end() && coming_.contains(request->session))
    return fail(error_code::node_restarting, "the session is being taken over");
  const auto pidfd = local::pidfd_of(connection.socket.get());
  if (!pidfd) return std::unexpected(pidfd.error());
  if (found == sessions_.end() || found->second.resources->secret != request->secret ||
      !local::may_be_one_process(process_of(*found->second.resources),
                                 local::identify(pidfd->get(), connection.peer))) {
    return fail(error_code::closed, "the node does not know this session; attach again");
  }
  if (found->second.killed) return fail(error_code::session_killed, "the operator ended this session");
  if (found->second.set_aside) return fail(error_code::closed, "this session has ended; attach again");
  if (connection.session != 0 && connection.session != request->session) {
    return fail(error_code::malformed, "this connection has another session");
  }
  const int before = found->second.socket;
  found->second.socket = connection.socket.get();
  connection.session = request->session;
  if (before >= 0 && before != connection.socket.get()) hooks_.replaced(before);
  // A list that was made before this worker began may lack what its predecessor handed out in between.
  const bool whole = frame.header.minor < 3 || request->listed_in == context_.epoch;
  ask_for<outcome>(
      connection, frame.header,
      [epoch = context_.epoch, header = frame.header](auto& client, const outcome& back) -> result<void> {
        if (const auto status = back.get(); !status) return std::unexpected(status.error());
        byte_writer reply;
        reply.put(epoch);
        return client.out.send(local::reply_to(header, local::frame_type::reattach_reply), std::move(reply).take());
      },
      top_of(*found->second.resources), reattach_atom_v, request->session,
      whole ? std::make_shared<const std::vector<local::held_block>>(request->held) : nullptr);
  return {};
}

result<void> attachments::send_slabs(connection& connection, const local::frame& frame) {
  const auto session = sessions_.find(connection.session);
  if (session == sessions_.end()) return fail(error_code::malformed, "slabs before attach");
  auto indices = local::decode_slab_query(frame.payload);
  if (!indices) return std::unexpected(indices.error());
  connection.promised = indices->size();
  ask_for<slab_handles_ptr>(
      connection, frame.header,
      [header = frame.header](auto& client, const slab_handles_ptr& handles) {
        return client.out.send(local::reply_to(header, local::frame_type::slabs_reply),
                               local::encode_slabs(handles->slabs), local::numbers_of(handles->fds));
      },
      top_of(*session->second.resources), handles_atom_v, session->second.resources->instance, *indices);
  return {};
}

/// Backends know which removals wait, on threads of their own.
result<void> attachments::send_unconfirmed(connection& connection, const local::frame& frame) {
  const auto session = sessions_.find(connection.session);
  if (session == sessions_.end()) return fail(error_code::malformed, "a question about removals before attach");
  const auto take = await_answer<remote::unconfirmed_removals>(
      connection, frame.header, [header = frame.header](auto& client, const remote::unconfirmed_removals& counted) {
        return client.out.send(local::reply_to(header, local::frame_type::unconfirmed_reply),
                               local::encode(local::unconfirmed_reply{counted.removals, counted.places}));
      });
  context_.count_unconfirmed(session->second.resources->identity, take);
  return {};
}

result<void> attachments::take_spans(const connection& connection, const local::frame& frame) {
  const auto found = sessions_.find(connection.session);
  if (found == sessions_.end()) return fail(error_code::malformed, "spans before attach");
  const auto batch = local::decode_spans(frame.payload);
  if (!batch) return std::unexpected(batch.error());
  if (!context_.exporter) return {};  // the client read the word of an earlier worker
  const session_resources& session = *found->second.resources;
  const auto origin = std::make_shared<traces::span_origin>(traces::span_origin{
      .session = session.number,
      .client = std::string(cut_text(session.client_name, traces::most_text_bytes)),
      .instance_group = std::string(cut_text(session.instance_group, traces::most_text_bytes)),
      .tiers = tier_of(session.instance) == 0 ? context_.tiers : std::vector<std::string_view>{"dram"}});
  context_.exporter->add({.uid = static_cast<std::uint32_t>(session.uid), .group = session.instance_group}, origin,
                         *batch);
  return {};
}

// ---------------------------------------------------------------------------------------------- end

result<void> attachments::detach(connection& connection, const local::frame_header& request) {
  if (connection.session == 0) return fail(error_code::malformed, "detach before attach");
  const std::uint64_t number = std::exchange(connection.session, 0);
  end(number, "detached");
  const auto open = releasing_.find(number);
  if (open == releasing_.end()) return connection.out.send(local::reply_to(request, local::frame_type::done), {});
  open->second.client = defer(connection, request);
  return {};
}

void attachments::answer_detached(const asker& client) {
  hooks_.answer(client, [request = client.request](connection& receiver) {
    return receiver.out.send(local::reply_to(request, local::frame_type::done), {});
  });
}

void attachments::end(std::uint64_t number, std::string_view why) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) return;
  if (found->second.set_aside) return;  // asked a second time: tick() ends it
  const bool is_written = found->second.resources->view.header().device_writes.load(std::memory_order_acquire) != 0;
  if (is_written) return set_aside(number, found->second, why);
  finish(number, why);
}

void attachments::finish(std::uint64_t number, std::string_view why) {
  const auto found = sessions_.find(number);
  const attached gone = std::move(found->second);
  sessions_.erase(found);
  context_.path.unwatch(gone.doorbell);
  sockets_->unwatch(gone.death);
  release(number);
  if (gone.socket >= 0) hooks_.ended(gone.socket);
  log_info(logger("server"), "session ended", {{"session", number}, {"pid", gone.resources->pid}, {"why", why}});
}

/// A device may still read what a dead process had pinned, into memory that went with the process: nothing of it is
/// used.
void attachments::end_pins(const session_resources& session) {
  if (!has_ended(session.pidfd.get())) return;
  const auto& memory = session.view;
  const std::uint64_t used =
      std::min<std::uint64_t>(memory.pin_slots(), memory.header().pin_high_water.load(std::memory_order_acquire));
  for (std::uint64_t slot = 0; slot < used; ++slot)
    memory::shared_store(memory.pin(slot), 0, std::memory_order_release, "session.pin_ended"_point);
}

/// The end of a process ends what it wrote, but not what it told a GPU to write: the driver's last close may come
/// later, or a child may have inherited the GPU's files.
void attachments::set_aside(std::uint64_t number, attached& session, std::string_view why) {
  const auto patience = config_.get()->gpu.quarantine;
  session.set_aside.emplace(std::chrono::steady_clock::now(), patience);
  gpus_.prepare();
  // The next worker cannot tell by the process, if it only ended its session.
  memory::shared_store(session.resources->view.header().device_writes, memory::session_header::set_aside,
                       std::memory_order_release, "session.set_aside"_point);
  sockets_->unwatch(std::exchange(session.death, 0));
  caf::anon_send(context_.groups, disconnect_atom_v, number);
  // Later this number of a socket may be another client's.
  if (session.socket >= 0) hooks_.ended(std::exchange(session.socket, -1));
  end_pins(*session.resources);
  tell_disconnected(*session.resources);  // free are its keys and what it was not writing
  log_info(logger("server"), "session set aside: a device may still write for it",
           {{"session", number},
            {"pid", session.resources->pid},
            {"why", why},
            {"seconds", std::chrono::duration<double>(patience).count()}});
}

void attachments::end_set_aside() {
  std::vector<std::pair<std::uint64_t, std::string_view>> over;
  for (auto& [number, each] : sessions_) {
    if (!each.set_aside) continue;
    if (const auto why = reason_to_end(number, each); !why.empty()) over.emplace_back(number, why);
  }
  for (const auto& [number, why] : over) finish(number, why);
}

/// A client that has closed its session may have reached no worker that lived on to end it.
void attachments::end_departed() {
  std::vector<std::uint64_t> departed;
  for (const auto& [number, each] : sessions_) {
    if (each.socket < 0 && has_departed(*each.resources)) departed.push_back(number);
  }
  for (const std::uint64_t number : departed) end(number, "its client left");
}

/// Of a session that was set aside; empty: it stays. A process that ended its session and lives has its context, which
/// says nothing: of it only the time counts.
std::string_view attachments::reason_to_end(std::uint64_t number, attached& session) {
  const auto now = std::chrono::steady_clock::now();
  if (!session.set_aside->has_had_its_time(now)) return {};
  const session_resources& its = *session.resources;
  const auto answer = has_ended(its.pidfd.get()) ? gpus_.ask(its.pid) : gpu_answer::nobody_knows;
  if (answer == gpu_answer::listed && !std::exchange(session.is_listed, true)) {
    log_info(logger("server"), "a session stays set aside: the driver still lists its process",
             {{"session", number}, {"pid", its.pid}});
  }
  switch (session.set_aside->judge(now, answer)) {
    case quarantine::verdict::goes_on: return {};
    case quarantine::verdict::over: return "its device has had its time";
    case quarantine::verdict::given_up: break;
  }
  gpus_.forget(its.pid);
  log_warn(logger("server"),
           "what a device may still write is used again: nobody says that the driver has let go of it",
           {{"session", number},
            {"pid", its.pid},
            {"driver", answer == gpu_answer::listed ? "lists the process" : "does not answer"},
            {"times_quarantine", quarantine::most}});
  return "its device had ten times its time";
}

/// A session that its tier has ended is a rank no more: the other ranks do not wait for it.
void attachments::leave_groups() {
  for (auto& [number, each] : sessions_) {
    if (!each.resources->view.has_ended() || std::exchange(each.has_left_groups, true)) continue;
    caf::anon_send(context_.groups, disconnect_atom_v, number);
  }
}

/// Of the node's actors, and when they have answered, of the keeper. What timed out before may still be carried out:
/// this comes behind it.
void attachments::release(std::uint64_t number) {
  releasing_[number].deadline = local::event_loop::clock::now() + actor_deadline;
  ask_then<outcome>(
      context_.system, [] { return true; },
      on_loop<outcome>([this, number](const result<outcome>& freed) { note_released(number, freed); }), context_.node,
      release_atom_v, number);
}

/// A question that was repeated has two answers: the first one counts.
void attachments::note_released(std::uint64_t number, const result<outcome>& freed) {
  const auto answered = releasing_.extract(number);
  if (answered.empty()) return;
  if (!freed) {
    log_error(logger("server"), "a session was not released",
              {{"session", number}, {"reason", freed.error().describe()}});
  }
  drop_entry(number);
  if (answered.mapped().client) answer_detached(*answered.mapped().client);
}

/// Releasing twice does no harm. A client that detached waits no longer.
void attachments::release_again() {
  const auto now = local::event_loop::clock::now();
  std::vector<std::uint64_t> late;
  for (const auto& [number, each] : releasing_) {
    if (each.deadline <= now) late.push_back(number);
  }
  for (const std::uint64_t number : late) {
    log_warn(logger("server"), "the node is too busy to release a session; it is asked again", {{"session", number}});
    if (const auto client = std::exchange(releasing_.at(number).client, std::nullopt)) answer_detached(*client);
    release(number);
  }
}

void attachments::drop_entry(std::uint64_t number) {
  const auto dropped = context_.keeper.drop(local::entry_kind::session, number, drop_deadline);
  if (dropped) return;
  log_warn(logger("server"), "the keeper did not drop a session", {{"reason", dropped.error().describe()}});
  if (dropped.error().code() == error_code::deadline_exceeded) undropped_.push_back(number);  // tried again
}

void attachments::tick() {
  end_late();
  end_set_aside();
  end_departed();
  leave_groups();
  hand_over_choice();
  for (const std::uint64_t number : std::exchange(undropped_, {})) drop_entry(number);
  release_again();
}

void attachments::connection_closed(std::uint64_t number, int socket) {
  const auto under_way = std::ranges::find_if(
      openings_, [&](const auto& each) { return !each.second.has_ended && each.second.to.socket == socket; });
  if (under_way != openings_.end()) {
    log_info(logger("server"), "an attach was given up",
             {{"pid", under_way->second.peer.pid}, {"why", "its client left"}});
    return refuse(under_way, error(error_code::closed, "its client left"));
  }
  const auto session = sessions_.find(number);
  if (session == sessions_.end() || session->second.socket != socket) return;
  session->second.socket = -1;
  tell_disconnected(*session->second.resources);
}

void attachments::drain(error reason) {
  draining_ = std::move(reason);
  std::vector<std::uint64_t> waiting;
  for (const auto& [ticket, each] : openings_) {
    if (!each.has_ended) waiting.push_back(ticket);
  }
  for (const std::uint64_t ticket : waiting) {
    const auto found = openings_.find(ticket);
    if (found != openings_.end()) refuse(found, *draining_);
  }
  for (const auto& [number, each] : sessions_) {
    const auto phase = each.resources->view.header().phase.load(std::memory_order_relaxed);
    if (phase == static_cast<std::uint32_t>(memory::session_phase::device_lost)) continue;  // it is told that already
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
  tell_disconnected(*found->second.resources);
  caf::anon_send(context_.groups, disconnect_atom_v, number);
  // Only the end of the process proves that it neither reads nor writes any more.
  const pid_t pid = found->second.resources->pid;
  const std::string process = pid != 0 ? "process " + std::to_string(pid) : "process, of another PID namespace,";
  if (::syscall(SYS_pidfd_send_signal, found->second.resources->pidfd.get(), SIGKILL, nullptr, 0) != 0) {
    return fail(error_code::permission_denied, "session " + std::to_string(number) +
                                                   " is refused from now on, but its blocks stay until its " + process +
                                                   " ends: the daemon may not kill it");
  }
  return {};
}

void attachments::end_suspect(std::uint64_t number) {
  const auto found = sessions_.find(number);
  if (found == sessions_.end()) {
    if (coming_.contains(number)) coming_suspects_.insert(number);
    return;
  }
  const session_resources& session = *found->second.resources;
  log_error(logger("server"), "workers died of what this session asked for: its process is ended",
            {{"session", number}, {"pid", session.pid}, {"client", session.client_name}});
  if (const auto killed = kill(number); !killed) {
    log_error(logger("server"), "the process of a session was not ended",
              {{"session", number}, {"reason", killed.error().describe()}});
  }
}

}  // namespace cenote
