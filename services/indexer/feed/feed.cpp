// An answer to a replay comes from one process. It proves that what was applied is of that process by bringing the last
// confirmed batch again; whatever it cannot prove goes, so that nothing is ever there too much.
#include "services/indexer/feed/feed.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "core/checksum.hpp"

namespace cenote::indexer {

namespace {

constexpr auto distant_future = feed_time::max();
constexpr std::uint32_t hole_tries = 3;          // a batch that so many replays lack is lost
constexpr std::uint32_t short_answer_tries = 2;  // live batches that so many answers lack are of an earlier life
constexpr std::uint32_t snapshot_tries = 3;

void add(std::uint64_t& sum, std::uint64_t count) noexcept {
  sum =
      count > std::numeric_limits<std::uint64_t>::max() - sum ? std::numeric_limits<std::uint64_t>::max() : sum + count;
}

}  // namespace

feed::feed(const feed_options& options, waiting_total* total)
    : options_(options), run_(options.recent), waiting_(options.waiting_bytes, total) {}

// ---------------------------------------------------------------------------------------------- inputs

void feed::connected(feed_time now) {
  const bool is_first = !std::exchange(was_connected_, true);
  is_connected_ = true;
  has_no_replay_ = has_no_snapshot_ = has_failed_snapshot_ = has_given_up_ = false;
  tries_ = 0;
  connected_order_ = waiting_.order();
  stop();  // it may have been asked of a process that is gone
  wish_.reset();
  const bool has_question = is_first ? options_.rules.replays_at_connect : options_.rules.replays_at_reconnect;
  if (!options_.has_replay) {
    if (!is_first && run_.exists() && options_.rules.clears_unproved) {
      clear(clear_reason::loss);
      run_.forget();
      is_complete_ = false;
    }
    is_silent_ = false;
  } else if (has_question) {
    want(run_.exists() && !run_.is_adopted() ? replay_kind::check : replay_kind::whole, now);
  } else {
    is_silent_ = false;
    drain(now);
  }
  note(now);
}

void feed::disconnected(feed_time now) {
  if (!std::exchange(is_connected_, false)) return;
  away_since_ = now;
  if (running_) {
    stop();
    want(replay_kind::check, now);
  }
  note(now);
}

void feed::live(std::uint64_t seq, batch_payload payload, feed_time now) {
  if (is_refused(seq, payload)) {
    if (seq == end_number) return;
    live_next_ = std::max(live_next_, seq + 1);
    if (!running_) want(replay_kind::check, now);
    return note(now);
  }
  rest(now, options_.quiet);
  const std::uint64_t fingerprint = checksum_of(payload.bytes);
  const std::uint64_t end = std::max(live_next_, run_.next());
  if (seq < end && is_double(seq, fingerprint)) {
    add(counters_.doubles, 1);
    live_next_ = std::max(live_next_, seq + 1);
    if (waiting_.find(seq) == nullptr && run_.compare(seq, fingerprint) == batch_run::likeness::unknown) doubt(now);
    return note(now);
  }
  if (seq < end) {
    begin_anew(now);
  } else if (seq > end && (live_next_ != 0 || run_.exists())) {
    add(counters_.gaps, 1);
  }
  take_live(seq, fingerprint, std::move(payload), now);
  note(now);
}

void feed::replay_frame(std::uint64_t number, std::uint64_t seq, batch_payload payload, feed_time now) {
  if (!is_of_running(number, now) || running_->kind == replay_kind::snapshot) return;
  if (is_refused(seq, payload)) {
    if (seq == end_number) {
      fail(now);
      return note(now);
    }
    if (seq == running_->expected && running_->is_proved && seq == run_.next()) {
      running_->expected = seq + 1;
      running_->applied = 0;
      begin_run(seq + 1, clear_reason::loss);
    }
    return note(now);
  }
  take_replayed(seq, checksum_of(payload.bytes), std::move(payload), now);
  note(now);
}

void feed::replay_end(std::uint64_t number, feed_time now) {
  if (!is_of_running(number, now) || running_->kind == replay_kind::snapshot) return;
  const replay_request answered = *running_;
  stop();
  if (!answered.has_frames && has_given_up_ && live_next_ != 0) {
    has_no_replay_ = true;  // batches come, and none is kept there
    return note(now);
  }
  const bool is_short = answered.applied != 0 && (!answered.is_proved || answered.expected < answered.applied);
  if (run_.exists() && is_short && options_.rules.misses_applied) {
    begin_anew(now);
    return note(now);
  }
  if (!run_.exists()) begin_run(0, clear_reason::renewal);  // nothing was published yet
  has_given_up_ = false;
  run_.confirm(answered.expected);
  settle(answered, now);
  note(now);
}

void feed::replay_failed(std::uint64_t number, feed_time now) {
  if (!is_of_running(number, now)) return;
  fail(now);
  note(now);
}

void feed::snapshot_frame(std::uint64_t number, batch_payload payload, feed_time now) {
  if (!is_of_running(number, now) || running_->kind != replay_kind::snapshot) return;
  if (is_refused(0, payload)) {
    fail(now);
    return note(now);
  }
  if (!std::exchange(running_->has_frames, true)) {
    clear(clear_reason::renewal);
    run_.forget();
    is_complete_ = false;
  }
  apply(0, 0, std::move(payload), batch_source::snapshot);
  note(now);
}

void feed::snapshot_end(std::uint64_t number, std::uint64_t next, feed_time now) {
  if (!is_of_running(number, now) || running_->kind != replay_kind::snapshot) return;
  if (next == end_number) {
    has_no_snapshot_ = true;
    const bool has_frames = running_->has_frames;
    stop();
    if (has_frames || !run_.exists()) {
      want(replay_kind::whole, now);
    } else {
      drain(now);
    }
    return note(now);
  }
  const replay_request answered = *running_;
  stop();
  if (!answered.has_frames) clear(clear_reason::renewal);
  run_.adopt(next);
  run_turn_ = turn_;
  is_complete_ = true;
  has_given_up_ = false;
  settle(answered, now);
  note(now);
}

void feed::all_cleared(std::uint64_t turn, feed_time now) {
  if (!run_.exists() || turn <= run_turn_ || turn > turn_) return;
  is_complete_ = true;
  note(now);
}

void feed::unread(feed_time now) {
  if (!run_.exists()) return;
  clear(clear_reason::loss);
  run_turn_ = turn_;
  is_complete_ = !options_.rules.marks_losses;
  note(now);
}

void feed::unknown_parent(feed_time now) {
  if (!options_.has_replay || has_no_replay_ || !options_.rules.checks_unknown_parents) return;
  if (running_ || (wish_ && wish_->is_urgent)) return;  // the question stands
  if (parent_asked_ && now - *parent_asked_ < options_.parent_pause) return;
  parent_asked_ = now;
  add(counters_.unknown_parents, 1);
  // The engine may be another one. If it was not, all that it kept is applied again, as long as that loses nothing.
  const bool is_full = std::exchange(is_parent_checked_, !is_parent_checked_) && ring_start_ <= run_.base();
  wish_.reset();
  want(is_full ? replay_kind::whole : replay_kind::check, now);
  wish_->is_full = is_full;
  note(now);
}

void feed::begin_replay(feed_time now) {
  if (now < replay_at()) return;
  wish granted = *wish_;
  wish_.reset();
  const auto proof = run_.proof(options_.rules.repeats_unconfirmed);
  if (granted.kind == replay_kind::check && !proof) granted.kind = replay_kind::whole;
  const bool may_snapshot = options_.rules.takes_snapshots && !has_no_snapshot_ && !has_failed_snapshot_;
  if (granted.kind == replay_kind::snapshot && !may_snapshot) granted.kind = replay_kind::whole;
  const bool has_snapshots = options_.kind == publisher_kind::node || run_.is_adopted();
  if (granted.kind == replay_kind::whole && has_snapshots && may_snapshot) granted.kind = replay_kind::snapshot;
  running_ = replay_request{};
  replay_request& made = *running_;
  made.number = ++number_;
  made.kind = granted.kind;
  made.is_full = granted.is_full;
  made.heard_at = now;
  made.limit = now + options_.replay_limit;
  made.applied = made.progress = run_.next();
  made.proof = made.expected = proof && options_.rules.repeats_applied ? *proof : run_.next();
  made.is_proved = !proof || !options_.rules.repeats_applied;
  made.live_next = live_next_;
  made.order = waiting_.order();
  if (!options_.rules.repeats_applied) made.applied = 0;
  add(counters_.asks, 1);
  asked_at_ = now;
  commands_.emplace_back(feed_ask{number_, made.kind, made.kind == replay_kind::check ? made.proof : 0});
  note(now);
}

void feed::advance(feed_time now) {
  if (running_ && now >= deadline()) fail(now);
  if (now >= quiet_at_) {
    quiet_at_ = distant_future;
    if (is_connected_ && !wish_ && run_.exists() && options_.rules.checks_quiet) want(replay_kind::check, now, false);
  }
  if (!is_connected_ && was_connected_ && options_.rules.grows_silent && now - away_since_ >= options_.grace)
    is_silent_ = true;
  note(now);
}

// ---------------------------------------------------------------------------------------------- live batches

bool feed::is_refused(std::uint64_t seq, const batch_payload& payload) noexcept {
  if (seq != end_number && payload.bytes.size() <= options_.batch_bytes) return false;
  add(counters_.refused, 1);
  add(counters_.refused_bytes, payload.bytes.size());
  return true;
}

/// Live numbers below those that came are doubles if their fingerprints are the same. Numbers that rise through what a
/// replay has brought already are doubles, too, when the fingerprint is no longer kept.
bool feed::is_double(std::uint64_t seq, std::uint64_t fingerprint) const noexcept {
  if (!options_.rules.compares_live) return true;
  if (const held_batch* const same = waiting_.find(seq)) return same->fingerprint == fingerprint;
  const auto likeness = run_.compare(seq, fingerprint);
  return likeness == batch_run::likeness::equal ||
         (likeness == batch_run::likeness::unknown && seq >= live_next_ && seq >= run_.base());
}

/// A double without a fingerprint may be another life's batch: one check in `parent_pause` finds out.
void feed::doubt(feed_time now) {
  if (running_ || wish_ || (doubted_at_ && now - *doubted_at_ < options_.parent_pause)) return;
  doubted_at_ = now;
  want(replay_kind::check, now);
}

/// While an answer is awaited on which the run depends.
bool feed::holds_live() const noexcept {
  if (running_) return !has_given_up_ || running_->has_frames;
  return wish_ && wish_->is_urgent && !has_given_up_;
}

void feed::take_live(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload, feed_time now) {
  if (!holds_live()) {
    if (run_.is_next(seq)) {
      live_next_ = seq + 1;
      return apply(seq, fingerprint, std::move(payload), batch_source::live);
    }
    if (!options_.rules.replays_gaps && run_.exists()) return skip(seq, fingerprint, std::move(payload));
    if (has_given_up_ || has_no_replay_ || !options_.has_replay ||
        (!run_.exists() && !options_.rules.replays_at_connect)) {
      live_next_ = seq + 1;
      return take_bare(seq, fingerprint, std::move(payload));
    }
    want(replay_kind::check, now);
  } else if (!options_.rules.waits_behind_replay) {
    return skip(seq, fingerprint, std::move(payload));
  }
  const std::size_t size = payload.bytes.size();
  if (!waiting_.add(seq, fingerprint, std::move(payload))) {
    add(counters_.dropped_bytes, size);
    if (!options_.rules.replays_dropped) return;
  }
  live_next_ = seq + 1;
}

/// For rules that are left out: as if nothing lay before it.
void feed::skip(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload) {
  run_.begin(seq);
  live_next_ = seq + 1;
  apply(seq, fingerprint, std::move(payload), batch_source::live);
}

/// Without replays: whatever lies before it is lost.
void feed::take_bare(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload) {
  if (!run_.is_next(seq)) begin_run(seq, clear_reason::loss);
  apply(seq, fingerprint, std::move(payload), batch_source::live);
}

// ---------------------------------------------------------------------------------------------- answers

bool feed::is_of_running(std::uint64_t number, feed_time now) noexcept {
  if (!running_ || (running_->number != number && options_.rules.numbers_replays)) {
    add(counters_.late_frames, 1);
    return false;
  }
  running_->heard_at = now;
  return true;
}

void feed::take_replayed(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload, feed_time now) {
  replay_request& answer = *running_;
  if (!std::exchange(answer.has_frames, true)) {
    has_given_up_ = false;
    if (answer.kind == replay_kind::whole) {
      ring_start_ = std::max(ring_start_, seq);
      if (is_better_start(seq)) {
        begin_run(seq, clear_reason::renewal);
        answer.is_proved = true;
        answer.expected = seq;
        answer.applied = 0;
      }
    }
  }
  if (!answer.is_proved && !prove(seq, fingerprint, now)) return;
  const bool is_other = run_.compare(seq, fingerprint) == batch_run::likeness::different;
  if (is_other && options_.rules.compares_replayed) return begin_anew(now);
  if (seq < answer.expected) return add(counters_.doubles, 1);
  if (seq > answer.expected && !bridge(seq, now)) return;
  answer.expected = seq + 1;
  if (!run_.is_next(seq)) return run_.confirm(seq + 1);  // applied before
  const held_batch* const same = waiting_.find(seq);
  if (same != nullptr && same->fingerprint != fingerprint && same->order > answer.order) return begin_anew(now);
  apply(seq, fingerprint, std::move(payload), batch_source::replay);
  add(counters_.replayed, 1);
  run_.confirm(seq + 1);
}

/// Whether all that is there gives way to an answer that begins with `seq`: it loses nothing by that.
bool feed::is_better_start(std::uint64_t seq) const noexcept {
  if (!run_.exists() || run_.next() == run_.base()) return true;
  if (running_->is_full && seq <= run_.base() && (seq == 0 || !is_complete_)) return true;
  return seq < run_.base() && !is_complete_;
}

/// The first frame that matters has to be the batch that was asked for again.
bool feed::prove(std::uint64_t seq, std::uint64_t fingerprint, feed_time now) {
  replay_request& answer = *running_;
  if (seq < answer.proof) return false;
  if (seq > answer.proof) {  // the ring does not reach back, or another life goes on
    begin_run(seq, clear_reason::loss);
    answer.applied = 0;
  } else if (run_.compare(seq, fingerprint) == batch_run::likeness::different && options_.rules.compares_replayed) {
    begin_anew(now);
    return false;
  }
  answer.is_proved = true;
  answer.expected = seq;
  return true;
}

/// A hole in an answer: frames were dropped on their way. True: they are lost for good, and the run begins behind them.
bool feed::bridge(std::uint64_t seq, feed_time now) {
  replay_request& answer = *running_;
  holes_ = hole_ == answer.expected ? holes_ + 1 : 1;
  hole_ = answer.expected;
  if (holes_ < hole_tries) {
    fail(now);
    // All before the hole is there: the next answer begins with the end of it, behind earlier holes.
    if (wish_ && !has_given_up_ && run_.proof(options_.rules.repeats_unconfirmed)) wish_->kind = replay_kind::check;
    return false;
  }
  holes_ = 0;
  begin_run(seq, clear_reason::loss);
  answer.applied = 0;
  return true;
}

void feed::fail(feed_time now) {
  const replay_request failed = *running_;
  stop();
  add(counters_.failures, 1);
  tries_ = run_.next() != failed.progress ? 1 : tries_ + 1;
  if (failed.kind == replay_kind::snapshot && tries_ >= snapshot_tries) has_failed_snapshot_ = true;
  if (tries_ >= options_.tries && options_.rules.gives_up) return give_up(now);
  want(failed.kind, pause_end(now));
}

/// Nothing answers. What is there cannot be proved any more; what comes live is better than nothing.
void feed::give_up(feed_time now) {
  if (!has_given_up_) {
    clear(clear_reason::loss);
    run_.forget();
    is_complete_ = is_silent_ = false;
    has_given_up_ = true;
  }
  want(replay_kind::whole, pause_end(now));
  add(counters_.unconfirmed, waiting_.drop_older(connected_order_));  // the connection may be another life's
  while (!waiting_.empty()) {
    held_batch first = waiting_.take_first();
    take_bare(first.seq, first.fingerprint, std::move(first.payload));
  }
}

/// Nothing comes for a while: then a check finds batches whose loss no later one shows.
void feed::rest(feed_time now, std::chrono::milliseconds pause) noexcept {
  quiet_pause_ = std::min(pause, options_.longest_quiet);
  quiet_at_ = now + quiet_pause_;
}

/// An answer is through.
void feed::settle(const replay_request& answered, feed_time now) {
  rest(now, std::max(options_.quiet, quiet_pause_ * 2));
  add(counters_.doubles, waiting_.drop_below(options_.rules.counts_once ? run_.next() : 0));
  if (answered.live_next > run_.next()) {  // live batches that had come before it was asked for are not in it
    ++tries_;
    if (++short_answers_ < short_answer_tries || !options_.rules.drops_unconfirmed) {
      if (tries_ >= options_.tries && options_.rules.gives_up) return give_up(now);
      return want(replay_kind::check, pause_end(now));
    }
    if (live_next_ == answered.live_next) live_next_ = run_.next();
    add(counters_.unconfirmed, waiting_.drop_older(answered.order));
    if (answered.has_frames) tries_ = 0;
  } else {
    tries_ = 0;
  }
  short_answers_ = 0;
  if (tries_ >= options_.tries && options_.rules.gives_up) return give_up(now);
  drain(now);
}

/// Applies what waits and fits; asks for what is still missing.
void feed::drain(feed_time now) {
  const auto is_ready = [this](std::uint64_t seq) {
    return run_.is_next(seq) || (seq < run_.next() && !options_.rules.counts_once);
  };
  while (!waiting_.empty() && is_ready(waiting_.first().seq)) {
    held_batch first = waiting_.take_first();
    apply(first.seq, first.fingerprint, std::move(first.payload), batch_source::live);
  }
  if (!waiting_.empty() || live_next_ > run_.next()) return want(replay_kind::check, pause_end(now));
  is_silent_ = is_silent_ && !is_connected_;
  if (is_complete_ || !run_.exists()) return;
  if (options_.rules.takes_snapshots && !has_no_snapshot_) {
    const bool is_again = std::exchange(has_failed_snapshot_, false);
    return want(replay_kind::snapshot, is_again ? now + options_.parent_pause : now, !is_again);
  }
  if (ring_start_ < run_.base()) want(replay_kind::whole, now + options_.parent_pause, false);
}

// ---------------------------------------------------------------------------------------------- decisions

void feed::apply(std::uint64_t seq, std::uint64_t fingerprint, batch_payload payload, batch_source source) {
  add(counters_.applied, 1);
  if (source == batch_source::snapshot) add(counters_.snapshot, 1);
  has_media_ = true;
  commands_.emplace_back(feed_apply{++turn_, seq, source, std::move(payload)});
  if (source != batch_source::snapshot && run_.is_next(seq)) run_.append(fingerprint);
}

void feed::clear(clear_reason reason) {
  if (!std::exchange(has_media_, false)) return;
  if (reason == clear_reason::restart ? !options_.rules.clears_restarts : !options_.rules.clears_losses) return;
  commands_.emplace_back(feed_clear{++turn_, reason});
}

/// All that is there goes, and `first` is the next batch.
void feed::begin_run(std::uint64_t first, clear_reason reason) {
  if (first > run_.next()) add(counters_.lost_batches, first - run_.next());
  clear(reason);
  run_.begin(first);
  run_turn_ = turn_;
  is_complete_ = first == 0 || !options_.rules.marks_losses;
  if (!is_complete_) report();  // before anything of it is applied
}

/// Another life: nothing of what came is of it, but what comes next.
void feed::begin_anew(feed_time now) {
  add(counters_.restarts, 1);
  if (options_.kind == publisher_kind::engine) clear(clear_reason::restart);
  run_.forget();
  waiting_.clear();
  stop();
  wish_.reset();
  is_complete_ = is_parent_checked_ = false;
  live_next_ = ring_start_ = holes_ = short_answers_ = 0;
  want(replay_kind::whole, pause_end(now));
}

void feed::want(replay_kind kind, feed_time earliest, bool is_urgent) {
  if (!options_.has_replay || has_no_replay_ || running_) return;
  if (asked_at_) earliest = std::max(earliest, *asked_at_ + options_.first_pause);  // however often it is wanted
  if (!wish_) {
    wish_ = wish{.kind = kind, .earliest = earliest, .is_urgent = is_urgent};
    return;
  }
  wish_->kind = std::max(wish_->kind, kind);
  if (is_urgent) wish_->earliest = wish_->is_urgent ? std::max(wish_->earliest, earliest) : earliest;
  wish_->is_urgent = wish_->is_urgent || is_urgent;
}

void feed::stop() {
  if (!running_) return;
  commands_.emplace_back(feed_stop{running_->number});
  running_.reset();
}

feed_time feed::pause_end(feed_time now) const noexcept {
  if (tries_ == 0) return now;
  const auto pause = options_.first_pause * (std::int64_t{1} << std::min(tries_ - 1, std::uint32_t{16}));
  return now + std::min<std::chrono::milliseconds>(pause, options_.longest_pause);
}

// ---------------------------------------------------------------------------------------------- figures and times

feed_time feed::deadline() const noexcept {
  if (!options_.rules.retries_replays) return distant_future;
  const auto first = options_.first_answer * (std::int64_t{1} << std::min(tries_, std::uint32_t{16}));
  const auto silence = running_->has_frames ? options_.replay_silence : std::min(first, options_.replay_silence);
  return std::min(running_->heard_at + silence, running_->limit);
}

std::vector<feed_command> feed::take_commands() {
  return std::exchange(commands_, {});
}

feed_time feed::replay_at() const noexcept {
  return wish_ && is_connected_ && !running_ && !has_no_replay_ ? wish_->earliest : distant_future;
}

feed_time feed::wake_at() const noexcept {
  const bool is_leaving = !is_connected_ && was_connected_ && !is_silent_ && options_.rules.grows_silent;
  const feed_time silence = is_leaving ? away_since_ + options_.grace : distant_future;
  const bool may_check = is_connected_ && options_.has_replay && !has_no_replay_ && options_.rules.checks_quiet;
  return running_ ? std::min(deadline(), silence) : may_check ? std::min(quiet_at_, silence) : silence;
}

feed_mark feed::mark() const noexcept {
  const bool is_whole = run_.exists() && is_complete_;
  const bool is_degraded = has_given_up_ || has_no_replay_ ? !is_whole : run_.exists() && !is_complete_;
  const bool is_asking = holds_live() && (running_ || wish_);
  const auto state = is_silent_                          ? publisher_state::silent
                     : !was_connected_ && !run_.exists() ? publisher_state::connecting
                     : is_asking                         ? publisher_state::replaying
                     : is_degraded                       ? publisher_state::degraded
                                                         : publisher_state::live;
  return {.state = state, .is_in_answers = !is_silent_, .is_degraded = is_degraded};
}

std::optional<std::uint64_t> feed::last_applied() const noexcept {
  return run_.exists() && run_.next() != 0 ? std::optional(run_.next() - 1) : std::nullopt;
}

double feed::behind_s(feed_time now) const noexcept {
  if (!behind_since_ || now < *behind_since_) return 0;
  return std::chrono::duration<double>(now - *behind_since_).count();
}

/// At the end of each input.
void feed::note(feed_time now) {
  const bool is_behind = !waiting_.empty() || live_next_ > run_.next() || running_ || (wish_ && wish_->is_urgent);
  if (!is_behind)
    behind_since_.reset();
  else if (!behind_since_)
    behind_since_ = now;
  report();
}

void feed::report() {
  const feed_mark present = mark();
  is_ready_ = is_ready_ || present.state == publisher_state::live || present.state == publisher_state::degraded;
  if (present == reported_) return;
  reported_ = present;
  commands_.emplace_back(reported_);
}

}  // namespace cenote::indexer
