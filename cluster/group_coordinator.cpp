#include "cluster/group_coordinator.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <utility>

#include "cluster/agreement_times.hpp"

namespace cenote::cluster {

// ---- who is in

void group_coordinator::open(const instance_identity& shared, std::uint32_t size) {
  is_open_ = true;
  shared_ = shared;
  size_ = size;
}

void group_coordinator::close() noexcept {
  is_open_ = false;
  waiting_.clear();
  conflicts_.clear();
}

bool group_coordinator::answers(const std::string& seeker) const {
  if (is_formed()) return table_.contains(seeker) || table_.size() > 1;
  return is_open_;
}

std::optional<peer::refused_ranks> group_coordinator::refuse(const std::string& whom, const peer::join_group& what,
                                                             error_code code, std::string why) {
  peer::refused_ranks refusal{.group = group_, .code = code, .lives = {}, .why = std::move(why)};
  for (const peer::joined_rank& each : what.ranks) refusal.lives.push_back(each.life);
  conflicts_.erase(whom);
  if (whom == self_) return refusal;
  refusals_.emplace_back(whom, std::move(refusal));
  return std::nullopt;
}

std::optional<std::string> group_coordinator::why_wrong(const peer::join_group& what) const {
  const std::string first = "rank 0 of group `" + group_.text + "`, at node " + self_ + ", ";
  if (what.size != size_)
    return first + "says that it has " + std::to_string(size_) + " ranks, not " + std::to_string(what.size);
  if (what.shared != shared_) return first + "has another model, dtype, layout, block size, hash scheme or fingerprint";
  if (std::ranges::adjacent_find(what.ranks, std::ranges::greater_equal{}, &peer::joined_rank::rank) !=
      what.ranks.end())
    return "ranks of group `" + group_.text + "` are named twice, or not in order";
  for (const peer::joined_rank& each : what.ranks) {
    if (each.rank >= size_)
      return "group `" + group_.text + "` has " + std::to_string(size_) + " ranks: there is no rank " +
             std::to_string(each.rank);
  }
  return std::nullopt;
}

/// A frame that was overtaken by a later one, or whose ranks were in an epoch that is over.
bool group_coordinator::is_stale(const std::string& from, peer::incarnation born, std::uint64_t turn) const {
  const auto waits = waiting_.find(from);
  if (waits != waiting_.end() && waits->second.born == born && turn < waits->second.turn) return true;
  const auto left = left_.find(from);
  return left != left_.end() && left->second.born == born && turn <= left->second.turn;
}

std::optional<std::pair<std::uint32_t, std::string>> group_coordinator::taken_rank(const std::string& from,
                                                                                   const peer::join_group& what) const {
  const auto has = [](const auto& ranks, std::uint32_t rank) {
    return std::ranges::any_of(ranks, [rank](const peer::joined_rank& each) { return each.rank == rank; });
  };
  for (const peer::joined_rank& wanted : what.ranks) {
    for (const auto& [name, each] : table_) {
      if (name != from && has(each.ranks, wanted.rank)) return std::pair(wanted.rank, name);
    }
    for (const auto& [name, each] : waiting_) {
      if (name != from && has(each.ranks, wanted.rank)) return std::pair(wanted.rank, name);
    }
  }
  return std::nullopt;
}

/// Who claims a rank that another node has waits for a while: that node's word that its rank is gone may be on its way.
std::optional<peer::refused_ranks> group_coordinator::resolve(const std::string& from, const peer::join_group& what,
                                                              std::uint32_t rank, const std::string& holder,
                                                              const known_nodes& nodes, steady_time now) {
  const auto [since, is_new] = conflicts_.emplace(from, now);
  const bool is_held = holder == self_ || nodes.is_live(holder);
  if (is_new || !is_held || now - since->second < options_.grace) return std::nullopt;
  return refuse(from, what, error_code::invalid_argument,
                "rank " + std::to_string(rank) + " of group `" + group_.text + "` is at node " + holder +
                    " already: a name is one group's in a cluster, and a rank one session's");
}

/// Whether the join is of an epoch that has begun: it goes on, or ends here since a rank of it came again.
bool group_coordinator::rejoins(const std::string& from, peer::incarnation born, const peer::join_group& what,
                                steady_time now) {
  const auto member = table_.find(from);
  if (member == table_.end()) return false;
  const member_node& in = member->second;
  const bool is_same_life = in.born == born || !options_.rules.checks_incarnations;
  if (is_same_life && (what.ranks == in.ranks || what.turn <= in.turn)) return true;  // it will hear of it
  lose("ranks of node " + from + " left and joined again", now);
  return false;
}

std::optional<peer::refused_ranks> group_coordinator::take(const std::string& from, peer::incarnation born,
                                                           const peer::join_group& what, const known_nodes& nodes,
                                                           steady_time now) {
  if (rejoins(from, born, what, now) || !is_open_ || is_stale(from, born, what.turn)) return std::nullopt;
  if (what.ranks.empty()) {
    waiting_.erase(from);
    return std::nullopt;
  }
  if (const auto why = why_wrong(what)) return refuse(from, what, error_code::spec_mismatch, *why);
  if (const auto taken = taken_rank(from, what)) return resolve(from, what, taken->first, taken->second, nodes, now);
  conflicts_.erase(from);
  if (is_formed()) return std::nullopt;  // not a member, and nobody's place: cannot be, all places are taken
  waiting_[from] = {born, what.turn, what.ranks};
  form_if_complete();
  return std::nullopt;
}

void group_coordinator::form_if_complete() {
  std::set<std::uint32_t> ranks;
  for (const auto& [name, each] : waiting_) {
    for (const peer::joined_rank& one : each.ranks) ranks.insert(one.rank);
  }
  if (ranks.size() != size_) return;
  epoch_ = {options_.rules.epochs_name_a_life ? born_ : peer::incarnation{}, ++epochs_};
  why_lost_.clear();
  forget_questions();
  floor_ = 0;
  first_in_log_ = 1;
  for (auto& [name, each] : waiting_) {
    member_node& made = table_[name];
    made = {.index = table_.size() - 1, .born = each.born, .turn = each.turn, .ranks = std::move(each.ranks)};
    made.has_heard = name == self_;
    telling_.erase(name);
  }
  waiting_.clear();
  conflicts_.clear();
}

void group_coordinator::forget_questions() {
  open_.clear();
  deadlines_.clear();
  decided_.clear();
  log_.clear();
  in_log_.clear();
}

void group_coordinator::lose(const std::string& why, steady_time now) {
  if (!is_formed()) return;
  why_lost_ = why;
  for (const auto& [name, each] : table_) {
    if (each.has_heard) left_[name] = {each.born, each.turn};
    if (name != self_) telling_[name] = {epoch_, each.born, why, now, now + options_.tell_for};
  }
  table_.clear();
  forget_questions();
  close();  // its rank 0 must leave, too
}

std::vector<peer::node_ranks> group_coordinator::table() const {
  std::vector<peer::node_ranks> nodes;
  nodes.reserve(table_.size());
  for (const auto& [name, each] : table_) nodes.push_back({name, each.born, each.ranks});
  return nodes;
}

std::map<std::uint32_t, std::string> group_coordinator::joined() const {
  std::map<std::uint32_t, std::string> ranks;
  for (const auto& [name, each] : waiting_) {
    for (const peer::joined_rank& one : each.ranks) ranks[one.rank] = name;
  }
  return ranks;
}

std::string group_coordinator::missing() const {
  constexpr int most_named = 8;
  const auto there = joined();
  std::string text;
  int count = 0;
  for (std::uint32_t rank = 0; rank < size_; ++rank) {
    if (there.contains(rank) || ++count > most_named) continue;
    text += (text.empty() ? "" : ", ") + std::to_string(rank);
  }
  if (count > most_named) text += " and " + std::to_string(count - most_named) + " more";
  return (count == 1 ? "rank " : "ranks ") + text + " of " + std::to_string(size_);
}

// ---- what is decided

void group_coordinator::take(const std::string& from, peer::incarnation born, const peer::propose_lengths& what,
                             steady_time now) {
  const auto told = telling_.find(from);
  if (what.is_over && told != telling_.end() && told->second.epoch == what.epoch) telling_.erase(told);
  const auto member = table_.find(from);
  const bool is_current = member != table_.end() && what.epoch == epoch_ &&
                          (member->second.born == born || !options_.rules.checks_incarnations);
  if (is_current && what.is_over) lose("node " + from + ": " + what.why, now);
  if (!is_current || what.is_over) {
    replies_.emplace_back(from, peer::lost_epoch{group_, what.epoch, false, why_lost_});
    return;
  }
  member_node& in = member->second;
  if (what.heard_up_to > in.sent_up_to) {
    ++counters_.stray_frames;  // nothing of the kind was sent
    return;
  }
  in.has_heard = true;
  in.heard_up_to = std::max(in.heard_up_to, what.heard_up_to);
  for (const peer::proposal& each : what.proposals) gather(in, each, now);
  trim_log();
}

void group_coordinator::propose(const peer::proposal& what, steady_time now) {
  if (const auto self = table_.find(self_); self != table_.end()) gather(self->second, what, now);
}

void group_coordinator::gather(member_node& from, const peer::proposal& what, steady_time now) {
  const bool was_decided = decided_.contains(what.question);
  if (was_decided && options_.rules.decides_once) return;  // it is told, or will be told again
  if (!was_decided && what.question < floor_ && !open_.contains(what.question) && options_.rules.refuses_forgotten) {
    // Decided and forgotten, or passed over: not known any more. What is decided and on its way comes instead.
    if (!in_log_.contains(what.question) && from.too_old.size() < options_.most_open)
      from.too_old.push_back(what.question);
    return;
  }
  const auto deadline = now + decides_after(std::chrono::nanoseconds(clamped_ns(what.timeout_ns)));
  const auto [found, is_new] = open_.try_emplace(what.question);
  gathering& of = found->second;
  if (is_new) {
    of.least = what.length;
    of.deadline = deadline;
  } else if (of.said.test(from.index)) {
    return;  // the first word counts
  } else {
    if (!of.is_decided) deadlines_.erase({of.deadline, what.question});
    of.deadline = std::min(of.deadline, deadline);
  }
  if (!of.is_decided) deadlines_.emplace(of.deadline, what.question);
  of.least = std::min(of.least, what.length);
  of.said.set(from.index);
  const bool is_complete = of.said.count() == table_.size();
  const bool is_too_much = open_.size() > 2 * options_.most_open;
  // A 0 is the least, whatever the others say.
  if (is_complete || of.least == 0 || is_too_much) decide(what.question, is_complete ? of.least : 0);
}

void group_coordinator::decide(std::uint64_t question, std::uint64_t length) {
  if (const auto found = open_.find(question); found != open_.end()) {
    deadlines_.erase({found->second.deadline, question});
    const bool is_complete = found->second.said.count() == table_.size();
    found->second.is_decided = true;
    if (options_.rules.decides_once || is_complete) open_.erase(found);
  }
  decided_[question] = length;
  for (peer::decision& each : log_) {
    if (options_.rules.decides_once) break;
    if (each.question == question) each.length = length;
  }
  log_.push_back({question, length});
  in_log_.insert(question);
  if (decided_.size() > options_.most_remembered) {
    floor_ = std::max(floor_, decided_.begin()->first + 1);
    decided_.erase(decided_.begin());
  }
}

void group_coordinator::decide_due(steady_time now) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const std::uint64_t question = deadlines_.begin()->second;
    decide(question, options_.rules.missing_is_zero ? 0 : open_.at(question).least);
  }
}

std::vector<peer::decision> group_coordinator::take_decisions() {
  const auto self = table_.find(self_);
  if (self == table_.end() || self->second.heard_up_to == last_decision()) return {};
  const auto begin = static_cast<std::ptrdiff_t>(self->second.heard_up_to + 1 - first_in_log_);
  std::vector<peer::decision> fresh(log_.begin() + begin, log_.end());
  self->second.heard_up_to = last_decision();
  trim_log();
  return fresh;
}

std::vector<std::uint64_t> group_coordinator::take_too_old() {
  const auto self = table_.find(self_);
  return self == table_.end() ? std::vector<std::uint64_t>() : std::exchange(self->second.too_old, {});
}

void group_coordinator::trim_log() {
  std::uint64_t least = last_decision();
  for (const auto& [name, each] : table_) least = std::min(least, each.heard_up_to);
  while (first_in_log_ <= least) {
    in_log_.erase(log_.front().question);
    log_.pop_front();
    ++first_in_log_;
  }
}

// ---- time and frames

void group_coordinator::advance(const known_nodes& nodes, steady_time now) {
  const auto is_gone = [&](const std::string& name, peer::incarnation born) {
    const auto* const known = nodes.find(name);
    return known == nullptr || (known->born != born && options_.rules.checks_incarnations);
  };
  std::erase_if(waiting_, [&](const auto& each) {
    return each.first != self_ && (is_gone(each.first, each.second.born) || !nodes.is_live(each.first));
  });
  std::erase_if(conflicts_, [&](const auto& each) { return nodes.find(each.first) == nullptr; });
  std::erase_if(left_, [&](const auto& each) { return each.first != self_ && is_gone(each.first, each.second.born); });
  std::erase_if(telling_,
                [&](const auto& each) { return now >= each.second.until || is_gone(each.first, each.second.born); });
  for (const auto& [name, each] : table_) {
    if (name == self_) continue;
    const auto* const known = nodes.find(name);
    const bool is_away = known != nullptr && known->gone_since && now - *known->gone_since >= options_.grace;
    if (is_gone(name, each.born) || is_away)
      return lose("node " + name + (is_away ? " is not there any more" : " was started again"), now);
    if (last_decision() - each.heard_up_to > options_.most_unheard)
      return lose("node " + name + " does not acknowledge what was decided", now);
  }
  decide_due(now);
}

void group_coordinator::send_decisions(const std::string& name, member_node& to, std::uint64_t above,
                                       const send_function& send) {
  peer::decided_lengths what{.group = group_, .epoch = epoch_, .first = above + 1, .decisions = {}, .too_old = {}};
  const auto begin = log_.begin() + static_cast<std::ptrdiff_t>(above + 1 - first_in_log_);
  const auto count = std::min<std::ptrdiff_t>(log_.end() - begin, peer::most_frame_questions);
  what.decisions.assign(begin, begin + count);
  what.too_old = std::exchange(to.too_old, {});
  to.sent_up_to = std::max(to.sent_up_to, above + static_cast<std::uint64_t>(count));
  send(name, peer::frame_type::group_says, peer::encode(what));
}

void group_coordinator::flush_node(const std::string& name, member_node& to, const send_function& send,
                                   steady_time now) {
  if (to.again && !options_.rules.sends_again) to.again = steady_time::max();
  const bool is_due = to.again && now >= *to.again;
  if (!to.has_heard) {
    if (to.again && !is_due) return;
    counters_.repeats += to.again ? 1 : 0;
    to.again = now + options_.repeat_after;
    return send(name, peer::frame_type::group_formed, peer::encode(peer::group_formed{group_, epoch_, table()}));
  }
  const bool has_more = to.sent_up_to < last_decision();
  const bool is_unheard = to.heard_up_to < to.sent_up_to;
  if (!is_unheard) to.again.reset();
  if (is_unheard && is_due) {
    ++counters_.repeats;
    send_decisions(name, to, to.heard_up_to, send);
  } else if (has_more || !to.too_old.empty()) {
    send_decisions(name, to, to.sent_up_to, send);
    if (to.again && !is_due) return;
  } else {
    return;
  }
  to.again = now + options_.repeat_after;
}

/// Only where a test leaves the rule out.
void group_coordinator::forget_sent() {
  decided_.clear();
  for (auto& [name, each] : table_) each.heard_up_to = std::max(each.heard_up_to, each.sent_up_to);
  trim_log();
}

void group_coordinator::flush(const send_function& send, steady_time now) {
  for (auto& [name, each] : table_) {
    if (name != self_) flush_node(name, each, send, now);
  }
  if (!options_.rules.remembers_decisions) forget_sent();
  for (const auto& [name, each] : refusals_) send(name, peer::frame_type::group_says, peer::encode(each));
  refusals_.clear();
  for (auto& [name, each] : telling_) {
    if (now < each.again) continue;
    const bool is_first = each.again + options_.tell_for == each.until;
    counters_.repeats += is_first ? 0 : 1;
    each.again = options_.rules.sends_again ? now + options_.repeat_after : each.until;
    send(name, peer::frame_type::group_says, peer::encode(peer::lost_epoch{group_, each.epoch, true, each.why}));
  }
  for (const auto& [name, each] : replies_) send(name, peer::frame_type::group_says, peer::encode(each));
  replies_.clear();
}

steady_time group_coordinator::wake_at(const known_nodes& nodes) const {
  steady_time due = steady_time::max();
  if (!deadlines_.empty()) due = deadlines_.begin()->first;
  for (const auto& [name, each] : table_) {
    if (each.again) due = std::min(due, *each.again);
    const auto* const known = nodes.find(name);
    if (known != nullptr && known->gone_since) due = std::min(due, *known->gone_since + options_.grace);
  }
  for (const auto& [name, each] : telling_) due = std::min({due, each.again, each.until});
  return due;
}

}  // namespace cenote::cluster
