#include "cluster/agreement.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "cluster/agreement_times.hpp"
#include "core/byte_io.hpp"
#include "core/text.hpp"

namespace cenote::cluster {

namespace {

constexpr int seeks_after = 3;     // repeats without a word of the coordinator: others are asked, too
constexpr int forgets_after = 10;  // … and it is not taken for the coordinator any more

}  // namespace

instance_identity shared_identity_of(const instance_spec& spec) {
  byte_writer writer;
  for (const std::string* each : {&spec.model, &spec.dtype, &spec.layout, &spec.hash_scheme, &spec.fingerprint})
    writer.put_text(*each);
  writer.put(spec.tokens_per_block);
  return identity_of_bytes(writer.bytes());
}

// ---- ranks come and go

std::optional<error> agreement::why_not(const rank_join& what) const {
  if (ids_.contains(what.id)) return error(error_code::invalid_argument, "the rank's id is in use");
  if (what.group.empty()) return error(error_code::invalid_argument, "a group needs a name");
  if (const auto named = check_name("a group's name", what.group, peer::longest_group_name); !named)
    return named.error();
  if (what.size == 0 || what.size > peer::most_group_ranks)
    return error(error_code::invalid_argument, "a group has 1 to " + std::to_string(peer::most_group_ranks) +
                                                   " ranks, not " + std::to_string(what.size));
  if (what.rank >= what.size)
    return error(error_code::invalid_argument, "group `" + what.group + "` has " + std::to_string(what.size) +
                                                   " ranks: there is no rank " + std::to_string(what.rank));
  if (auto refusal = taken_ranks_.refusal(what.owner)) return refusal;
  const auto found = groups_.find({what.group, what.owner});
  if (found != groups_.end()) return why_not_in(found->second, what);
  return taken_groups_.refusal(what.owner);
}

std::optional<error> agreement::why_not_in(const group& of, const rank_join& what) const {
  const auto other =
      std::ranges::find_if(of.ranks, [](const auto& each) { return each.second.state != rank_state::lost; });
  if (other == of.ranks.end()) return std::nullopt;
  const std::string who = "rank " + std::to_string(other->first) + " of group `" + of.name.text + "`, of this node, ";
  if (of.size != what.size)
    return error(error_code::spec_mismatch,
                 who + "says that it has " + std::to_string(of.size) + " ranks, not " + std::to_string(what.size));
  if (of.shared != what.shared)
    return error(error_code::spec_mismatch,
                 who + "has another model, dtype, layout, block size, hash scheme or fingerprint");
  const auto same = of.ranks.find(what.rank);
  if (same != of.ranks.end() && same->second.state != rank_state::lost)
    return error(error_code::invalid_argument, "rank " + std::to_string(what.rank) + " of group `" + of.name.text +
                                                   "` is another session's of this node");
  return std::nullopt;
}

void agreement::join(const rank_join& what, steady_time now) {
  now_ = now;
  if (const auto why = why_not(what)) {
    ++counters_.refused;
    answers_.push_back(
        {.rank = what.id, .what = rank_answer::kind::refused, .code = why->code(), .why = why->message()});
    return;
  }
  const peer::group_name name{what.group, what.owner};
  const auto [found, is_new] = groups_.try_emplace(name);
  if (is_new) taken_groups_.take(name.owner);
  group& of = found->second;
  of.name = name;
  of.size = what.size;
  of.shared = what.shared;
  forget_rank(of, what.rank);  // one that was lost, if any
  of.ranks[what.rank] = {what.id, ++turns_, rank_state::waiting, now + gives_up_after(clamped(what.timeout)), {}};
  ids_[what.id] = {name, what.rank};
  taken_ranks_.take(name.owner);
  change_waiting(of, now);
}

void agreement::forget_rank(group& of, std::uint32_t rank) {
  const auto found = of.ranks.find(rank);
  if (found == of.ranks.end()) return;
  ids_.erase(found->second.id);
  taken_ranks_.give_back(of.name.owner);
  of.ranks.erase(found);
}

std::vector<peer::joined_rank> agreement::waiting_ranks(const group& of) const {
  std::vector<peer::joined_rank> ranks;
  for (const auto& [rank, each] : of.ranks) {
    if (each.state == rank_state::waiting) ranks.push_back({rank, each.life});
  }
  return ranks;
}

/// Others must hear who waits here.
void agreement::change_waiting(group& of, steady_time now) {
  if (of.is_formed) return;  // whoever waits has its turn when the epoch is over
  of.turn = ++turns_;
  of.again = now;
  const auto first = of.ranks.find(0);
  if (first != of.ranks.end() && first->second.state == rank_state::waiting) {
    if (!of.lead) of.lead.emplace(of.name, self_, born_, options_, epochs_, counters_);
    of.lead->open(of.shared, of.size);
    of.coordinator = self_;
    of.coordinator_born = born_;
    of.again = now + options_.repeat_after;  // a group of this node alone needs no word to others
    join_own(of, now);
  } else if (of.coordinator == self_) {
    of.coordinator.clear();
    of.lead->close();
  }
}

void agreement::join_own(group& of, steady_time now) {
  const auto refusal =
      of.lead->take(self_, born_, {of.name, of.shared, of.size, of.turn, waiting_ranks(of)}, nodes_, now);
  if (refusal) take_refusal(of, *refusal, now);
  follow_own(of, now);
}

void agreement::take_refusal(group& of, const peer::refused_ranks& what, steady_time now) {
  bool any = false;
  for (const std::uint64_t life : what.lives) {
    const auto found = std::ranges::find_if(of.ranks, [life](const auto& each) {
      return each.second.life == life && each.second.state == rank_state::waiting;
    });
    if (found == of.ranks.end()) continue;
    any = true;
    refuse_join(of, found->first, what.code, what.why);
  }
  if (any) change_waiting(of, now);
}

void agreement::refuse_join(group& of, std::uint32_t rank, error_code code, const std::string& why) {
  ++counters_.refused;
  of.why = why;
  answers_.push_back({.rank = of.ranks.at(rank).id, .what = rank_answer::kind::refused, .code = code, .why = why});
  forget_rank(of, rank);
}

void agreement::leave(rank_id rank, steady_time now) {
  now_ = now;
  const auto found = ids_.find(rank);
  if (found == ids_.end()) return;
  group& of = groups_.at(found->second.first);
  const std::uint32_t number = found->second.second;
  const rank_state was = of.ranks.at(number).state;
  forget_rank(of, number);
  std::erase_if(answers_, [rank](const rank_answer& each) { return each.rank == rank; });
  if (was == rank_state::in) lose(of, "rank " + std::to_string(number) + " left", now);
  if (was == rank_state::waiting) change_waiting(of, now);
  drop_idle();
}

// ---- epochs

/// What the coordinator here has decided or ended, this node's own ranks hear at once.
void agreement::follow_own(group& of, steady_time now) {
  if (!of.lead || of.coordinator != self_) return;
  if (of.is_formed && !of.lead->is_formed()) return lose(of, of.lead->why_lost(), now);
  if (!of.is_formed && of.lead->is_formed()) enter(of, of.lead->epoch(), of.lead->table(), now);
  for (const peer::decision& each : of.lead->take_decisions()) take_decision(of, each);
  for (const std::uint64_t each : of.lead->take_too_old()) take_too_old(of, each);
}

void agreement::enter(group& of, const peer::group_epoch& epoch, std::vector<peer::node_ranks> table, steady_time now) {
  ++counters_.formed;
  of.epoch = epoch;
  of.table = std::move(table);
  of.is_formed = true;
  of.in = 0;
  of.turn = ++turns_;
  of.again.reset();
  of.over.reset();
  of.open.clear();
  of.alarms.clear();
  of.decided.clear();
  of.unsaid.clear();
  of.says_again.reset();
  of.floor = of.heard_up_to = 0;
  of.owes_word = of.coordinator != self_;
  of.why.clear();
  const auto self = std::ranges::find(of.table, self_, &peer::node_ranks::node);
  for (const peer::joined_rank& one : self->ranks) {
    const auto found = of.ranks.find(one.rank);
    if (found == of.ranks.end() || found->second.life != one.life) continue;
    local_rank& each = found->second;
    each.state = rank_state::in;
    ++of.in;
    answers_.push_back(
        {.rank = each.id, .what = rank_answer::kind::formed, .epoch = epoch, .coordinator = of.coordinator});
  }
  watch_coordinator(of, now);
}

/// For good: each of its ranks that asks from now on hears of it.
void agreement::lose(group& of, const std::string& why, steady_time now) {
  if (!of.is_formed) return;
  ++counters_.lost;
  ++of.lost_total;
  of.is_formed = false;
  of.why = why;
  for (const auto& [question, each] : of.open)
    answer_all(each, {.what = rank_answer::kind::lost, .question = question, .code = error_code::closed, .why = why});
  for (auto& [rank, each] : of.ranks) {
    if (each.state != rank_state::in) continue;
    each.state = rank_state::lost;
    each.why = why;
  }
  of.open.clear();
  of.alarms.clear();
  of.unsaid.clear();
  of.says_again.reset();
  of.table.clear();
  if (options_.rules.lost_is_sticky) of.decided.clear();
  if (of.coordinator == self_) {
    of.lead->lose(why, now);
  } else {
    of.over = ended{of.epoch, of.coordinator, of.coordinator_born, why, now, now + options_.tell_for};
  }
  of.coordinator.clear();
  if (!waiting_ranks(of).empty()) change_waiting(of, now);
}

// ---- questions

void agreement::agree(rank_id rank, std::uint64_t question, std::uint64_t length, std::chrono::nanoseconds timeout,
                      steady_time now) {
  now_ = now;
  ++counters_.questions;
  rank_answer answer{.rank = rank, .what = rank_answer::kind::lost, .question = question, .code = error_code::closed};
  const auto found = ids_.find(rank);
  if (found == ids_.end()) {
    answer.why = "this node knows no such rank: it has left, or joined an earlier worker";
    answers_.push_back(std::move(answer));
    return;
  }
  group& of = groups_.at(found->second.first);
  const local_rank& who = of.ranks.at(found->second.second);
  const auto known = of.decided.find(question);
  const bool is_open = of.open.contains(question);
  const bool may_know = who.state == rank_state::in || !options_.rules.lost_is_sticky;
  if (may_know && known != of.decided.end()) {
    answer.what = rank_answer::kind::decided;
    answer.length = known->second;
  } else if (who.state == rank_state::lost) {
    answer.why = who.why;
  } else if (who.state == rank_state::waiting) {
    answer.what = rank_answer::kind::refused;
    answer.code = error_code::invalid_argument;
    answer.why = "rank " + std::to_string(found->second.second) + " waits for group `" + of.name.text + "` to form";
  } else if (!is_open && question < of.floor && options_.rules.refuses_forgotten) {
    ++counters_.too_old;
    answer.what = rank_answer::kind::refused;
    answer.code = error_code::limit_exceeded;
    answer.why = "question " + std::to_string(question) + " is too old: answers below " + std::to_string(of.floor) +
                 " are forgotten, and questions must grow";
  } else if (!is_open && of.open.size() >= options_.most_open) {
    answer.what = rank_answer::kind::refused;
    answer.code = error_code::limit_exceeded;
    answer.why = std::to_string(options_.most_open) + " questions of group `" + of.name.text + "` are open";
  } else {
    return ask(of, rank, question, length, clamped(timeout), now);
  }
  answers_.push_back(std::move(answer));
}

void agreement::ask(group& of, rank_id rank, std::uint64_t question, std::uint64_t length,
                    std::chrono::nanoseconds timeout, steady_time now) {
  const auto [found, is_new] = of.open.try_emplace(question);
  asked& what = found->second;
  const auto mine = std::ranges::find(what.lengths, rank, &std::pair<rank_id, std::uint64_t>::first);
  if (mine != what.lengths.end()) {
    if (!options_.rules.keeps_first_proposal) mine->second = length;
    return;
  }
  what.lengths.emplace_back(rank, length);
  const auto speaks_at = now + decides_after(timeout);
  const auto gives_up_at = now + gives_up_after(timeout);
  if (!is_new) of.alarms.erase({what.is_spoken ? what.gives_up_at : what.speaks_at, question});
  what.timeout = is_new ? timeout : std::min(what.timeout, timeout);
  what.speaks_at = is_new ? speaks_at : std::min(what.speaks_at, speaks_at);
  what.gives_up_at = is_new ? gives_up_at : std::min(what.gives_up_at, gives_up_at);
  of.alarms.emplace(what.is_spoken ? what.gives_up_at : what.speaks_at, question);
  if (what.is_spoken) return;  // too late to count
  if (what.lengths.size() == of.in || !options_.rules.speaks_for_all) speak(of, question, now);
}

/// Once for all ranks of this node, and never otherwise afterwards: 0 if one has not asked.
void agreement::speak(group& of, std::uint64_t question, steady_time now) {
  asked& what = of.open.at(question);
  const bool is_whole =
      what.lengths.size() == of.in || !options_.rules.speaks_for_all || !options_.rules.missing_is_zero;
  what.spoken = is_whole ? std::ranges::min(what.lengths, {}, &std::pair<rank_id, std::uint64_t>::second).second : 0;
  what.is_spoken = true;
  of.alarms.erase({what.speaks_at, question});
  of.alarms.emplace(what.gives_up_at, question);
  if (of.coordinator != self_) return of.unsaid.push_back(question);
  of.lead->propose({question, what.spoken, static_cast<std::uint64_t>(what.timeout.count())}, now);
  follow_own(of, now);
}

void agreement::take_decision(group& of, const peer::decision& what) {
  if (!of.decided.emplace(what.question, what.length).second) return;
  ++counters_.decided;
  ++of.decided_total;
  counters_.zeros += what.length == 0 ? 1 : 0;
  of.zeros_total += what.length == 0 ? 1 : 0;
  if (of.decided.size() > options_.most_remembered) {
    of.floor = std::max(of.floor, of.decided.begin()->first + 1);
    of.decided.erase(of.decided.begin());
  }
  const auto found = of.open.find(what.question);
  if (found == of.open.end()) return;
  answer_all(found->second, {.what = rank_answer::kind::decided, .question = what.question, .length = what.length});
  of.alarms.erase({found->second.is_spoken ? found->second.gives_up_at : found->second.speaks_at, what.question});
  of.open.erase(found);
}

/// The coordinator has forgotten it, or passed it over: no rank gets a number from now on.
void agreement::take_too_old(group& of, std::uint64_t question) {
  const auto found = of.open.find(question);
  if (found == of.open.end() || !found->second.is_spoken) return;
  ++counters_.too_old;
  answer_all(found->second, {.what = rank_answer::kind::refused,
                             .question = question,
                             .code = error_code::limit_exceeded,
                             .why = "question " + std::to_string(question) +
                                    " is too old: questions must grow, and its answer is forgotten"});
  of.alarms.erase({found->second.gives_up_at, question});
  of.open.erase(found);
}

void agreement::answer_all(const asked& of, rank_answer answer) {
  for (const auto& [rank, length] : of.lengths) {
    if (!ids_.contains(rank)) continue;  // it has left
    answer.rank = rank;
    answers_.push_back(answer);
  }
}

void agreement::watch_questions(group& of, steady_time now) {
  while (!of.alarms.empty() && of.alarms.begin()->first <= now) {
    const std::uint64_t question = of.alarms.begin()->second;
    asked& what = of.open.at(question);
    if (!what.is_spoken) {
      speak(of, question, now);
    } else if (options_.rules.waits_for_coordinator) {
      ++counters_.overdue;
      return lose(of, "question " + std::to_string(question) + " had no answer in time", now);
    } else {
      take_decision(of, {question, what.spoken});
    }
  }
}

// ---- time

void agreement::watch_joins(group& of, steady_time now) {
  std::vector<std::uint32_t> late;
  for (const auto& [rank, each] : of.ranks) {
    if (each.state == rank_state::waiting && each.deadline <= now) late.push_back(rank);
  }
  if (late.empty()) return;
  const std::string why = why_not_formed(of);
  for (const std::uint32_t rank : late) refuse_join(of, rank, error_code::deadline_exceeded, why);
  change_waiting(of, now);
}

std::string agreement::why_not_formed(const group& of) const {
  if (of.is_formed) return "group `" + of.name.text + "` has formed without this rank, which is elsewhere";
  if (of.coordinator == self_)
    return "group `" + of.name.text + "` did not form in time: " + of.lead->missing() + " did not join";
  if (of.coordinator.empty()) return "group `" + of.name.text + "` did not form in time: no node has its rank 0";
  return "group `" + of.name.text + "` did not form in time: `cenote status` of node " + of.coordinator +
         ", which has rank 0, says who is missing";
}

void agreement::watch_coordinator(group& of, steady_time now) {
  if (of.over && now >= of.over->until) of.over.reset();
  if (of.coordinator.empty() || of.coordinator == self_) return;
  const auto* const known = nodes_.find(of.coordinator);
  const bool is_other = known == nullptr || (known->born != of.coordinator_born && options_.rules.checks_incarnations);
  const bool is_away = known != nullptr && known->gone_since && now - *known->gone_since >= options_.grace;
  if (of.is_formed && (is_other || is_away)) {
    return lose(
        of,
        "node " + of.coordinator + ", which has rank 0, " + (is_away ? "is not there any more" : "was started again"),
        now);
  }
  const bool is_silent = now - of.here_at >= forgets_after * options_.repeat_after;
  if (!of.is_formed && (is_other || known->gone_since || is_silent)) of.coordinator.clear();
}

void agreement::advance(steady_time now) {
  now_ = now;
  for (auto& [name, of] : groups_) {
    watch_coordinator(of, now);
    if (of.lead) of.lead->advance(nodes_, now);
    const bool waits_for_others = of.coordinator == self_ && !of.is_formed && of.again && now >= *of.again;
    if (waits_for_others) join_own(of, now);  // who had its ranks may be gone
    follow_own(of, now);
    watch_questions(of, now);
    watch_joins(of, now);
  }
  drop_idle();
}

void agreement::members_changed(std::span<const live_node> live, steady_time now) {
  nodes_.set_live(live, now);
  advance(now);
}

steady_time agreement::due(const group& of) const {
  steady_time when = of.lead ? of.lead->wake_at(nodes_) : steady_time::max();
  if (of.again) when = std::min(when, *of.again);
  if (of.says_again) when = std::min(when, *of.says_again);
  if (of.over) when = std::min({when, of.over->again, of.over->until});
  if (!of.alarms.empty()) when = std::min(when, of.alarms.begin()->first);
  for (const auto& [rank, each] : of.ranks) {
    if (each.state == rank_state::waiting) when = std::min(when, each.deadline);
  }
  const auto* const known = nodes_.find(of.coordinator);
  if (known != nullptr && known->gone_since) when = std::min(when, *known->gone_since + options_.grace);
  return when;
}

steady_time agreement::wake_at() const {
  steady_time when = steady_time::max();
  for (const auto& [name, of] : groups_) when = std::min(when, due(of));
  return when;
}

void agreement::drop_idle() {
  std::erase_if(groups_, [this](const auto& each) {
    const bool is_idle = each.second.ranks.empty() && !each.second.over && !each.second.again &&
                         (!each.second.lead || each.second.lead->is_idle());
    if (is_idle) taken_groups_.give_back(each.first.owner);
    return is_idle;
  });
}

// ---- what other nodes say

result<void> agreement::heard(std::string_view node, peer::incarnation born, peer::frame_type type,
                              std::span<const std::byte> body, steady_time now) {
  now_ = now;
  ++counters_.frames;
  const auto* const known = nodes_.find(node);
  const bool is_of_this_life = known != nullptr && (known->born == born || !options_.rules.checks_incarnations);
  if (!is_of_this_life || node == self_) {
    ++counters_.stray_frames;
    return {};
  }
  const std::string from(node);
  switch (type) {
    case peer::frame_type::seek_group: return take_seek(from, body);
    case peer::frame_type::join_group: return take_join(from, born, body, now);
    case peer::frame_type::group_formed: return take_formed(from, born, body, now);
    case peer::frame_type::propose_lengths: return take_propose(from, born, body, now);
    case peer::frame_type::group_says: return take_saying(from, body, now);
    case peer::frame_type::group_here: return take_here(from, born, body, now);
    default: return {};  // a later version's
  }
}

agreement::group* agreement::find(const peer::group_name& name) {
  const auto found = groups_.find(name);
  return found == groups_.end() ? nullptr : &found->second;
}

result<void> agreement::take_seek(const std::string& from, std::span<const std::byte> body) {
  const auto what = peer::decode_seek_group(body);
  if (!what) return std::unexpected(what.error());
  const group* const of = find(what->group);
  if (of != nullptr && of->lead && of->lead->answers(from))
    send(from, peer::frame_type::group_here, peer::encode(peer::group_here{of->name, of->lead->is_formed()}));
  return {};
}

result<void> agreement::take_here(const std::string& from, peer::incarnation born, std::span<const std::byte> body,
                                  steady_time now) {
  const auto what = peer::decode_group_here(body);
  if (!what) return std::unexpected(what.error());
  group* const of = find(what->group);
  if (of == nullptr || of->is_formed || waiting_ranks(*of).empty()) return {};
  if (of->coordinator == self_) {
    // Two nodes have a rank 0: the one that has formed stays, or that of the smaller name.
    if (!what->is_formed && self_ < from) return {};
    if (now - of->rival_seen > options_.grace) of->rival_since = now;
    of->rival_seen = now;
    if (now - of->rival_since < options_.grace) return {};
    refuse_join(
        *of, 0, error_code::invalid_argument,
        "rank 0 of group `" + of->name.text + "` is at node " + from + ", too: a name is one group's in a cluster");
    change_waiting(*of, now);
    return {};
  }
  if (!of->coordinator.empty() && of->coordinator != from) return {};
  if (of->coordinator.empty()) of->again = now;
  of->coordinator = from;
  of->coordinator_born = born;
  of->here_at = now;
  return {};
}

result<void> agreement::take_join(const std::string& from, peer::incarnation born, std::span<const std::byte> body,
                                  steady_time now) {
  const auto what = peer::decode_join_group(body);
  if (!what) return std::unexpected(what.error());
  group* const of = find(what->group);
  if (of == nullptr || !of->lead) return {};
  (void)of->lead->take(from, born, *what, nodes_, now);
  follow_own(*of, now);
  return {};
}

/// Whether all ranks are there once, rank 0 at `from`, and of this node those that wait.
bool agreement::fits(const group& of, const std::string& from, const peer::group_formed& what) const {
  std::set<std::uint32_t> ranks;
  std::size_t count = 0;
  bool is_right = false;
  bool has_first = false;
  for (const peer::node_ranks& each : what.nodes) {
    count += each.ranks.size();
    for (const peer::joined_rank& one : each.ranks) {
      ranks.insert(one.rank);
      has_first |= one.rank == 0 && each.node == from;
    }
    if (each.node == self_)
      is_right = each.ranks == waiting_ranks(of) && (each.born == born_ || !options_.rules.checks_incarnations);
  }
  return is_right && has_first && count == of.size && ranks.size() == of.size && *ranks.rbegin() + 1 == of.size;
}

result<void> agreement::take_formed(const std::string& from, peer::incarnation born, std::span<const std::byte> body,
                                    steady_time now) {
  auto what = peer::decode_group_formed(body);
  if (!what) return std::unexpected(what.error());
  group* const of = find(what->group);
  if (of != nullptr && of->is_formed && what->epoch == of->epoch && from == of->coordinator) {
    of->owes_word = true;
    return {};
  }
  if (of != nullptr && of->is_formed && from == of->coordinator && of->epoch < what->epoch)
    lose(*of, "node " + from + " has begun another epoch", now);
  const bool is_expected =
      of != nullptr && !of->is_formed &&
      (of->coordinator == from || of->coordinator.empty() || !options_.rules.trusts_only_coordinator);
  const bool is_own = what->epoch.coordinator == born || !options_.rules.epochs_name_a_life;
  if (!is_expected || !is_own || !fits(*of, from, *what)) {
    ++counters_.stray_frames;
    say_over(from, what->group, what->epoch, "its ranks are not those that wait");
    return {};
  }
  of->coordinator = from;
  of->coordinator_born = born;
  enter(*of, what->epoch, std::move(what->nodes), now);
  return {};
}

result<void> agreement::take_propose(const std::string& from, peer::incarnation born, std::span<const std::byte> body,
                                     steady_time now) {
  const auto what = peer::decode_propose_lengths(body);
  if (!what) return std::unexpected(what.error());
  group* const of = find(what->group);
  if (of == nullptr || !of->lead) {
    send(from, peer::frame_type::group_says,
         peer::encode(peer::lost_epoch{what->group, what->epoch, false, "rank 0 has left"}));
    return {};
  }
  of->lead->take(from, born, *what, now);
  follow_own(*of, now);
  return {};
}

result<void> agreement::take_saying(const std::string& from, std::span<const std::byte> body, steady_time now) {
  const auto what = peer::decode_group_saying(body);
  if (!what) return std::unexpected(what.error());
  if (const auto* const decided = std::get_if<peer::decided_lengths>(&*what)) {
    take_decided(from, *decided);
  } else if (const auto* const lost = std::get_if<peer::lost_epoch>(&*what)) {
    take_lost(from, *lost, now);
  } else if (const auto* const refused = std::get_if<peer::refused_ranks>(&*what)) {
    group* const of = find(refused->group);
    if (of != nullptr && from == of->coordinator) take_refusal(*of, *refused, now);
  }
  return {};
}

bool agreement::is_of_coordinator(const group& of, const std::string& from) {
  if (from == of.coordinator || !options_.rules.trusts_only_coordinator) return true;
  ++counters_.stray_frames;
  return false;
}

void agreement::take_decided(const std::string& from, const peer::decided_lengths& what) {
  group* const of = find(what.group);
  if (of == nullptr || !of->is_formed || of->epoch != what.epoch) {
    ++counters_.stray_frames;
    return say_over(from, what.group, what.epoch, "this node is not in it");
  }
  if (!is_of_coordinator(*of, from)) return;
  for (const peer::decision& each : what.decisions) take_decision(*of, each);
  const std::uint64_t count = what.decisions.size();
  if (count != 0 && what.first != 0 && (what.first <= of->heard_up_to + 1 || !options_.rules.counts_gaps))
    of->heard_up_to = std::max(of->heard_up_to, what.first + count - 1);
  if (count != 0) of->owes_word = true;
  for (const std::uint64_t each : what.too_old) take_too_old(*of, each);
}

void agreement::take_lost(const std::string& from, const peer::lost_epoch& what, steady_time now) {
  group* const of = find(what.group);
  const bool is_current = of != nullptr && of->is_formed && of->epoch == what.epoch;
  if (is_current && !is_of_coordinator(*of, from)) return;
  if (is_current) lose(*of, what.why.empty() ? "node " + from + " says that it is over" : what.why, now);
  if (of != nullptr && of->over && of->over->epoch == what.epoch && of->over->coordinator == from) of->over.reset();
  if (what.wants_answer) say_over(from, what.group, what.epoch, "as told");
}

void agreement::say_over(const std::string& to, const peer::group_name& name, const peer::group_epoch& epoch,
                         const std::string& why) {
  send(to, peer::frame_type::propose_lengths,
       peer::encode(peer::propose_lengths{.group = name, .epoch = epoch, .is_over = true, .why = why}));
}

// ---- what this node says

void agreement::send(const std::string& to, peer::frame_type type, std::vector<std::byte> body) {
  frames_.push_back({to, type, std::move(body)});
}

void agreement::flush_seeking(group& of, steady_time now) {
  if (!of.again || now < *of.again || of.is_formed) return;
  const auto waiting = waiting_ranks(of);
  of.again.reset();
  if (of.coordinator == self_ && waiting.empty()) return;
  const bool is_told = !of.coordinator.empty() && of.coordinator != self_;
  if (is_told)
    send(of.coordinator, peer::frame_type::join_group,
         peer::encode(peer::join_group{of.name, of.shared, of.size, of.turn, waiting}));
  if (waiting.empty()) return;  // said once: who missed it is told when it matters
  if (nodes_.any_live() && (!is_told || now - of.here_at >= seeks_after * options_.repeat_after))
    send({}, peer::frame_type::seek_group, peer::encode(peer::seek_group{of.name, of.coordinator == self_}));
  if (!is_told || options_.rules.sends_again) of.again = now + options_.repeat_after;
}

void agreement::flush_word(group& of, steady_time now) {
  if (!of.is_formed || of.coordinator == self_) return;
  peer::propose_lengths word{.group = of.name, .epoch = of.epoch, .heard_up_to = of.heard_up_to};
  const auto add = [&](std::uint64_t question) {
    const auto found = of.open.find(question);
    if (found == of.open.end() || !found->second.is_spoken) return;
    word.proposals.push_back(
        {question, found->second.spoken, static_cast<std::uint64_t>(found->second.timeout.count())});
  };
  const bool is_again = of.says_again && now >= *of.says_again;
  if (is_again) {
    for (const auto& [question, each] : of.open) add(question);
    counters_.repeats += word.proposals.empty() ? 0 : 1;
    of.says_again.reset();
  } else {
    for (const std::uint64_t each : of.unsaid) add(each);
  }
  of.unsaid.clear();
  if (!word.proposals.empty() && !of.says_again && options_.rules.sends_again)
    of.says_again = now + options_.repeat_after;
  if (word.proposals.empty() && !of.owes_word) return;
  of.owes_word = false;
  send(of.coordinator, peer::frame_type::propose_lengths, peer::encode(word));
}

void agreement::flush(group& of, steady_time now) {
  flush_seeking(of, now);
  flush_word(of, now);
  if (of.over && now >= of.over->again) {
    say_over(of.over->coordinator, of.name, of.over->epoch, of.over->why);
    of.over->again = options_.rules.sends_again ? now + options_.repeat_after : of.over->until;
  }
  if (!of.lead) return;
  of.lead->flush([this](const std::string& to, peer::frame_type type,
                        std::vector<std::byte> body) { send(to, type, std::move(body)); },
                 now);
}

std::vector<agreement_frame> agreement::take_frames() {
  for (auto& [name, of] : groups_) flush(of, now_);
  drop_idle();
  return std::exchange(frames_, {});
}

std::vector<rank_answer> agreement::take_answers() {
  return std::exchange(answers_, {});
}

// ---- what is known

std::vector<group_report> agreement::report() const {
  std::vector<group_report> rows;
  for (const auto& [name, of] : groups_) {
    if (of.ranks.empty()) continue;
    group_report& row = rows.emplace_back();
    const bool waits = !waiting_ranks(of).empty();
    row.name = name;
    row.size = of.size;
    row.state = of.is_formed             ? group_state::formed
                : !waits                 ? group_state::lost
                : of.coordinator.empty() ? group_state::seeking
                                         : group_state::joining;
    row.epoch = of.epoch;
    row.coordinator = of.coordinator;
    row.open = of.open.size();
    row.decided = of.decided_total;
    row.zeros = of.zeros_total;
    row.lost = of.lost_total;
    row.why = of.why;
    std::map<std::uint32_t, group_report::place> places;
    if (of.lead && !of.is_formed) {
      for (const auto& [rank, node] : of.lead->joined()) places[rank] = {rank, node, group_state::joining};
    }
    for (const peer::node_ranks& each : of.table) {
      for (const peer::joined_rank& one : each.ranks) places[one.rank] = {one.rank, each.node, group_state::formed};
    }
    for (const auto& [rank, each] : of.ranks) {
      if (each.state != rank_state::in)
        places[rank] = {rank, self_, each.state == rank_state::lost ? group_state::lost : row.state};
    }
    for (auto& [rank, place] : places) row.ranks.push_back(std::move(place));
  }
  return rows;
}

}  // namespace cenote::cluster
