#include "actors/consensus.hpp"

#include <algorithm>
#include <utility>

#include "config/logging.hpp"

namespace cenote {

namespace {

using cluster::rank_answer;
using cluster::rank_id;
using memory::submission;

constexpr std::chrono::seconds decided_window{1};
constexpr std::size_t most_labels = 32;  // of instance groups, in metrics
constexpr std::string_view other_label = "other";

void push_done(std::vector<memory::completion>& to, std::uint32_t request, error_code code, std::uint64_t value = 0) {
  to.push_back({.request = request,
                .kind = memory::completion_kind::done,
                .code = static_cast<std::uint16_t>(code),
                .value = value});
}

void push_refusal(std::vector<memory::completion>& to, std::uint32_t request, error_code code, std::string_view why) {
  memory::refusal_text::pack(why, request, [&](const memory::completion& piece) { to.push_back(piece); });
  push_done(to, request, code);
}

}  // namespace

consensus::consensus(caf::actor_config& config, std::string self, peer::incarnation born, std::uint64_t epoch,
                     cluster::agreement_options options, clock now)
    : consensus_actor::base(config),
      self_(std::move(self)),
      epoch_(epoch),
      now_(std::move(now)),
      agreement_(self_, born, options, now_()) {}

void consensus::on_exit() {
  cluster_ = nullptr;
  sessions_.clear();
  ranks_.clear();
}

consensus::behavior_type consensus::make_behavior() {
  set_down_handler([this](const caf::down_msg& down) { went_down(down.source); });
  return {
      [this](group_requests_atom, const group_requests_ptr& requests) { take(*requests); },
      [this](disconnect_atom, std::uint64_t session) {
        end_session(session);
        finish_turn();
      },
      [this](group_members_atom, const group_members_ptr& members) {
        cluster_ = members->cluster;
        agreement_.members_changed(members->live, now_());
        finish_turn();
      },
      [this](group_frame_atom, const group_frame_ptr& frame) {
        const auto heard = agreement_.heard(frame->from, frame->born, frame->type, frame->body, now_());
        heard ? finish_turn() : finish_turn(frame->link, heard.error().message());
      },
      [this](wake_atom, std::uint64_t number) {
        if (!alarm_.take(this, number, now_())) return;
        agreement_.advance(now_());
        finish_turn();
      },
      [this](report_atom) { return report(); },
  };
}

// ---------------------------------------------------------------------------------------------- what sessions ask

void consensus::take(const group_requests& requests) {
  const auto [found, is_new] = sessions_.try_emplace(requests.session->number);
  session_ranks& session = found->second;
  if (is_new) {
    session.actor = caf::actor_cast<session_actor>(requests.answers_to);
    monitor(session.actor);  // its last requests may come after everybody else has heard of its end
  }
  answered_.push_back(requests.session->number);
  for (const submission& entry : requests.entries) take_entry(requests, session, entry);
  finish_turn();
}

/// Each request has one answer; of one that is more than an entry nothing is carried out.
void consensus::take_entry(const group_requests& from, session_ranks& session, const submission& entry) {
  const bool ends = (entry.flags & submission::flag_last) != 0;
  if (!ends) return;
  if (entry.index != 0) {
    return push_refusal(session.answers, entry.request, error_code::malformed,
                        "what a rank says is a request of one entry");
  }
  if (entry.parent != epoch_ && entry.op != memory::operation::leave) {
    return push_refusal(session.answers, entry.request, error_code::group_lost, "the node's worker was replaced");
  }
  switch (entry.op) {
    case memory::operation::join: return join(from, session, entry);
    case memory::operation::agree: return agree(session, entry);
    case memory::operation::leave: return leave(session, entry);
    default: return push_refusal(session.answers, entry.request, error_code::malformed, "no such operation");
  }
}

void consensus::join(const group_requests& from, session_ranks& session, const submission& entry) {
  const auto refuse = [&](error_code code, std::string_view why) {
    push_refusal(session.answers, entry.request, code, why);
  };
  if (entry.key_size == 0 || entry.key_size > memory::max_rank_group_name)
    return refuse(error_code::invalid_argument, "a group's name has 1 to 64 bytes");
  memory::join_terms terms = memory::join_terms::of(entry);
  if (terms.handle == 0 || session.by_handle.contains(terms.handle))
    return refuse(error_code::invalid_argument, "the handle is 0 or in use");
  drop_same(session, terms);
  if (session.by_handle.size() >= memory::most_rank_groups)
    return refuse(error_code::limit_exceeded, "a session is in 64 groups at most: leave one");
  const rank_id id = ++last_rank_;
  session.by_handle.emplace(terms.handle, id);
  ranks_.emplace(id, membership{.session = from.session->number,
                                .handle = terms.handle,
                                .join_request = entry.request,
                                .group = terms.name,
                                .rank = terms.rank,
                                .open = {}});
  agreement_.join({.id = id,
                   .group = std::move(terms.name),
                   .shared = from.session->shared_identity,
                   .rank = terms.rank,
                   .size = terms.size,
                   .timeout = terms.patience,
                   .owner = {.uid = from.session->uid, .group = from.session->instance_group}},
                  now_());
}

void consensus::agree(session_ranks& session, const submission& entry) {
  const auto refuse = [&](error_code code, std::string_view why) {
    push_refusal(session.answers, entry.request, code, why);
  };
  const auto terms = memory::agree_terms::of(entry);
  const auto found = session.by_handle.find(terms.handle);
  if (found == session.by_handle.end())
    return refuse(error_code::invalid_argument, "no rank of this session has that handle: it did not join, or left");
  membership& rank = ranks_.at(found->second);
  if (!rank.is_formed) return refuse(error_code::invalid_argument, "the join is not answered yet");
  if (rank.open.size() >= memory::most_open_questions)
    return refuse(error_code::limit_exceeded, "1024 questions of the rank are open: wait for answers");
  rank.open.emplace(terms.question, entry.request);
  agreement_.agree(found->second, terms.question, terms.length, terms.timeout, now_());
}

void consensus::leave(session_ranks& session, const submission& entry) {
  const auto found = session.by_handle.find(entry.grant_version);
  if (found != session.by_handle.end()) end_rank(session, found->second, "this rank left");
  push_done(session.answers, entry.request, error_code::ok, 1);
}

/// Of a session that joins as a rank that it is already: to join again is to leave, also if its word did not arrive.
void consensus::drop_same(session_ranks& session, const memory::join_terms& terms) {
  const auto same = std::ranges::find_if(session.by_handle, [&](const auto& each) {
    const membership& rank = ranks_.at(each.second);
    return rank.rank == terms.rank && rank.group == terms.name;
  });
  if (same != session.by_handle.end()) end_rank(session, same->second, "this rank joined again");
}

/// What it has open is answered.
void consensus::end_rank(session_ranks& session, rank_id id, std::string_view why) {
  const auto rank = ranks_.extract(id);
  session.by_handle.erase(rank.mapped().handle);
  agreement_.leave(id, now_());
  if (!rank.mapped().is_formed) push_refusal(session.answers, rank.mapped().join_request, error_code::group_lost, why);
  for (const auto& [question, request] : rank.mapped().open)
    push_refusal(session.answers, request, error_code::group_lost, std::exchange(why, {}));
}

void consensus::end_session(std::uint64_t number) {
  const auto session = sessions_.extract(number);
  if (!session) return;
  demonitor(session.mapped().actor.address());
  for (const auto& [handle, id] : session.mapped().by_handle) {
    agreement_.leave(id, now_());
    ranks_.erase(id);
  }
}

void consensus::went_down(const caf::actor_addr& who) {
  const auto its = [&](const auto& each) { return each.second.actor.address() == who; };
  const auto found = std::ranges::find_if(sessions_, its);
  if (found == sessions_.end()) return;
  end_session(found->first);
  finish_turn();
}

// ---------------------------------------------------------------------------------------------- what it says

void consensus::finish_turn(std::uint64_t bad_link, std::string why) {
  for (const rank_answer& each : agreement_.take_answers()) answer(each);
  auto frames = agreement_.take_frames();
  // First to the other nodes, who have to be waited for.
  if (cluster_ && (!frames.empty() || bad_link != 0)) {
    send(caf::actor_cast<cluster_actor>(cluster_), group_sayings_atom_v,
         std::make_shared<const group_sayings>(std::move(frames), bad_link, std::move(why)));
  }
  send_answers();
  sleep_until(agreement_.wake_at());
}

void consensus::answer(const rank_answer& what) {
  const auto found = ranks_.find(what.rank);
  if (found == ranks_.end()) return;  // it left
  membership& rank = found->second;
  session_ranks& session = sessions_.at(rank.session);
  answered_.push_back(rank.session);
  if (!rank.is_formed) return answer_join(what, rank, session);
  const auto [first, last] = rank.open.equal_range(what.question);
  for (auto each = first; each != last; ++each) {
    switch (what.what) {
      case rank_answer::kind::decided: push_done(session.answers, each->second, error_code::ok, what.length); break;
      // Of many that are lost at once the first one says why: the client hears no more.
      case rank_answer::kind::lost:
        push_refusal(session.answers, each->second, error_code::group_lost,
                     std::exchange(rank.says_why, false) ? what.why : "");
        break;
      default: push_refusal(session.answers, each->second, what.code, what.why); break;
    }
  }
  rank.open.erase(first, last);
}

void consensus::answer_join(const rank_answer& what, membership& rank, session_ranks& session) {
  if (what.what == rank_answer::kind::formed) {
    rank.is_formed = true;
    return push_done(session.answers, rank.join_request, error_code::ok, what.epoch.number);
  }
  const error_code code = what.what == rank_answer::kind::refused ? what.code : error_code::group_lost;
  push_refusal(session.answers, rank.join_request, code, what.why);
  session.by_handle.erase(rank.handle);
  ranks_.erase(what.rank);
}

void consensus::send_answers() {
  for (const std::uint64_t number : answered_) {
    const auto found = sessions_.find(number);
    if (found == sessions_.end() || found->second.answers.empty()) continue;
    session_ranks& session = found->second;
    send(session.actor, answer_atom_v,
         std::make_shared<const std::vector<memory::completion>>(std::exchange(session.answers, {})));
    if (!session.by_handle.empty()) continue;
    demonitor(session.actor.address());
    sessions_.erase(found);  // it comes again with its next request
  }
  answered_.clear();
}

/// The alarm is moved only to a sooner time.
void consensus::sleep_until(steady_time when) {
  if (when == steady_time::max()) return;
  const auto now = now_();
  constexpr std::chrono::hours longest{1};  // far away: nothing is open
  if (when - now > longest) return;
  alarm_.hasten(this, when, now);
}

// ---------------------------------------------------------------------------------------------- status

tier_report_ptr consensus::report() {
  const auto now = now_();
  auto made = std::make_shared<consensus_report>();
  made->totals = agreement_.counters();
  made->now.ranks = ranks_.size();
  for (const cluster::group_report& each : agreement_.report()) {
    rank_group_report& one = made->groups.emplace_back();
    one.group = each;
    one.label = label_of(each.name.owner.group);
    one.figures = {
        .uid = each.name.owner.uid,
        .size = each.size,
        .here = static_cast<std::uint64_t>(std::ranges::count(each.ranks, self_, &cluster::group_report::place::node)),
        .open = each.open,
        .decided = each.decided,
        .zeros = each.zeros,
        .lost = each.lost,
        .decided_per_s = rate_of(each, now)};
    made->now.formed += each.state == cluster::group_state::formed ? 1 : 0;
    made->now.open += each.open;
  }
  made->now.groups = made->groups.size();
  std::erase_if(rates_, [&](const auto& each) {
    return std::ranges::none_of(made->groups, [&](const auto& group) { return group.group.name == each.first; });
  });
  made->queued = mailbox().queue().total_task_size();
  made->describe();
  return made;
}

/// Names of instance groups are their engines' words, and may be others each day: metrics have a series for so many.
std::string consensus::label_of(const std::string& instance_group) {
  if (labels_.size() < most_labels) labels_.insert(instance_group);
  return labels_.contains(instance_group) ? instance_group : std::string(other_label);
}

/// Of the last second or so that somebody asked after.
double consensus::rate_of(const cluster::group_report& group, steady_time now) {
  const auto [found, is_new] = rates_.try_emplace(group.name, rate{.since = now, .decided = group.decided});
  rate& last = found->second;
  const auto passed = std::chrono::duration<double>(now - last.since).count();
  if (!is_new && now - last.since >= decided_window) {
    const std::uint64_t more = group.decided >= last.decided ? group.decided - last.decided : 0;  // known anew
    last = {.since = now, .decided = group.decided, .a_second = static_cast<double>(more) / passed};
  }
  return last.a_second;
}

}  // namespace cenote
