#include "tests/unit/services/indexer/feed/feed_world.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>
#include <variant>

namespace cenote::testing {

using namespace std::chrono_literals;
using indexer::batch_payload;
using indexer::feed_apply;
using indexer::feed_ask;
using indexer::feed_clear;

namespace {

constexpr auto faults_for = 15s;
constexpr auto live_lag_ms = 100U;    // the most that a live batch is late
constexpr auto notice_after = 150ms;  // connections are noticed when what the last one left was read
constexpr auto peace_for = 60s;       // longer than all pauses and tries together
constexpr std::uint64_t store = 1, removal = 2, all_gone = 3;
constexpr std::uint64_t root = 1;       // a block that a life stores first and keeps
constexpr std::uint64_t universe = 24;  // blocks of a life, a binary tree below the root

batch_payload payload_of(const std::vector<std::uint64_t>& words) {
  const auto kept = std::make_shared<const std::vector<std::uint64_t>>(words);
  return {.bytes = std::as_bytes(std::span(*kept)), .owner = kept};
}

std::vector<std::uint64_t> words_of(const batch_payload& payload) {
  std::vector<std::uint64_t> words(payload.bytes.size() / sizeof(std::uint64_t));
  std::memcpy(words.data(), payload.bytes.data(), words.size() * sizeof(std::uint64_t));
  return words;
}

}  // namespace

feed_figures& feed_figures::operator+=(const feed_figures& other) {
  applied += other.applied, replayed += other.replayed, snapshots += other.snapshots, gaps += other.gaps;
  doubles += other.doubles, restarts += other.restarts, losses += other.losses, kills += other.kills,
      asks += other.asks;
  failures += other.failures, late_frames += other.late_frames, unconfirmed += other.unconfirmed,
      dropped += other.dropped;
  parents += other.parents, equal += other.equal, degraded += other.degraded;
  return *this;
}

feed_world::feed_world(std::uint64_t seed, feed_world_options options)
    : random_(seed), options_(options), habit_(some_manners()), followed_(some_options()), feed_(followed_) {}

feed_world::manners feed_world::some_manners() {
  constexpr std::array<std::uint64_t, 6> rings{endless, endless, endless, 300, 40, 8};
  manners made;
  made.ring = rings.at(number(rings.size()));
  made.has_snapshots = chance() < 0.3;
  made.is_node = made.has_snapshots && chance() < 0.3;
  made.is_deaf = !made.is_node && chance() < 0.05;
  made.is_bound = !made.is_deaf && !made.is_node && chance() < 0.25;
  made.shares_names = !made.is_bound && chance() < 0.5;
  made.faults = chance() < 0.6 ? number(3) : endless;
  made.is_idle = made.faults == 0 && chance() < 0.4;
  made.swaps = chance() < 0.2;
  made.loses = chance() < 0.7 ? 0.08 * chance() : 0;
  made.doubles = chance() < 0.5 ? 0.1 * chance() : 0;
  made.cuts = chance() < 0.7 ? 0.3 * chance() : 0;
  made.holes = chance() < 0.4 ? 0.3 * chance() : 0;
  made.delays = chance() < 0.5 ? 0.8 * chance() : 0;
  return made;
}

indexer::feed_options feed_world::some_options() {
  indexer::feed_options made;
  made.rules = options_.rules;
  made.quiet = std::chrono::hours(1000);  // a world's end is when nothing is asked any more
  made.kind = habit_.is_node ? indexer::publisher_kind::node : indexer::publisher_kind::engine;
  made.waiting_bytes = chance() < 0.3 ? 2048 : 1 << 20;
  made.grace = 2s;
  made.recent = 128;
  made.replay_silence = 500ms;
  made.replay_limit = 3s;
  made.first_pause = 20ms;
  made.longest_pause = 2s;
  made.parent_pause = 1s;
  return made;
}

// ---------------------------------------------------------------------------------------------- time

void feed_world::plan(duration delay, std::function<void()> action) {
  incidents_.push({now_ + delay, ++order_, std::move(action)});
}

void feed_world::run_until(time_point end) {
  while (!failure_ && !incidents_.empty() && incidents_.top().time <= end) {
    const incident next = incidents_.top();
    incidents_.pop();
    now_ = next.time;
    next.action();
    check();
  }
  now_ = end;
}

void feed_world::set_alarm() {
  const auto next = std::max(now_, std::min(feed_.wake_at(), feed_.replay_at()));
  if (next >= alarm_ || next == time_point::max()) return;
  alarm_ = next;
  plan(next - now_ + (feed_.replay_at() <= next && chance() < 0.3 ? lag(30) : 0ms), [this] {
    alarm_ = time_point::max();
    feed_.advance(now_);
    feed_.begin_replay(now_);
    carry_out();
  });
}

// ---------------------------------------------------------------------------------------------- the publisher

void feed_world::start_process(bool is_lost) {
  publisher_.emplace();
  publisher_->life = ++lives_;
  publisher_->begin = now_;
  publisher_->tag = habit_.is_node || habit_.shares_names ? 1000 : lives_ * 1000;
  publisher_->blocks = publisher_->survivors = survivors_;
  delivered_next_ = connected_next_ = 0;
  last_arrival_ = {};  // another connection: batches of the life before may come between its own
  show("life " + std::to_string(lives_) + " begins");
  publish({{store, publisher_->tag + root, 0}}, is_lost);
  if (!habit_.is_bound) plan(notice_after + lag(200), [this, life = lives_] { notice(true, life); });
}

void feed_world::kill_process() {
  ++figures_.kills;
  show("life " + std::to_string(publisher_->life) + " ends at " + std::to_string(publisher_->next));
  for (std::uint64_t count = chance() < 0.4 ? number(4) : 0; count > 0; --count) publish_some();  // on their way still
  const std::uint64_t end = publisher_->next;
  if (habit_.is_node) survivors_ = publisher_->blocks;
  if (!habit_.is_bound && chance() < 0.9) plan(notice_after + lag(200), [this, life = lives_] { notice(false, life); });
  publisher_.reset();
  plan(chance() < 0.5 ? lag(50) : lag(5000), [this, end] {
    if (publisher_) return;
    const bool is_ahead = chance() < 0.5;
    start_process(is_ahead || chance() < 0.2);
    if (is_ahead) {  // before any batch of it arrives it is about as far as the life before was
      const std::uint64_t target = chance() < 0.8 ? end : end + number(8) - std::min<std::uint64_t>(end, 3);
      while (publisher_->next < std::min<std::uint64_t>(target, 600)) publish_some(true);
    }
    if (chance() < 0.3) pause_end_ = now_ + lag(6000);
  });
}

std::vector<feed_world::event> feed_world::some_events() {
  std::vector<event> events;
  std::set<std::uint64_t> present = publisher_->blocks;
  for (std::uint64_t count = 1 + number(3); count > 0; --count) {
    const double draw = chance();
    if (draw < 0.005 && !habit_.is_bound) {
      events.push_back({all_gone, 0, 0});
      events.push_back({store, publisher_->tag + root, 0});
      present = {publisher_->tag + root};
    } else if (draw < 0.7) {
      std::uint64_t block = 2 + number(universe);
      while (!present.contains(publisher_->tag + block / 2)) block /= 2;
      events.push_back({store, publisher_->tag + block, publisher_->tag + block / 2});
      present.insert(publisher_->tag + block);
    } else if (present.size() > 1) {
      const auto gone = std::next(present.begin(), 1 + static_cast<std::ptrdiff_t>(number(present.size() - 1)));
      events.push_back({removal, *gone, 0});
      present.erase(gone);
    }
  }
  return events;
}

void feed_world::change(std::set<std::uint64_t>& blocks, const event& happening) {
  if (happening.kind == store) blocks.insert(happening.block);
  if (happening.kind == removal) blocks.erase(happening.block);
  if (happening.kind == all_gone) blocks.clear();
}

void feed_world::publish_some(bool is_lost) {
  publish(some_events(), is_lost);
}

void feed_world::publish(std::vector<event> events, bool is_lost) {
  process& home = *publisher_;
  std::vector<std::uint64_t> words{home.life, home.next};
  for (const event& each : events) {
    words.insert(words.end(), {each.kind, each.block, each.parent});
    change(home.blocks, each);
  }
  const batch_payload payload = payload_of(words);
  const std::uint64_t seq = home.next++;
  home.log.push_back(std::move(events));
  home.ring.emplace_back(seq, payload);
  if (home.ring.size() > habit_.ring) home.ring.pop_front();
  if (is_lost || now_ < cut_end_ || (!is_peace_ && chance() < habit_.loses)) return;
  send_live(seq, payload);
  if (!is_peace_ && chance() < habit_.doubles) send_live(seq, payload);
}

void feed_world::send_live(std::uint64_t seq, const batch_payload& payload) {
  const duration delay = is_peace_ || chance() < 0.8 ? lag(5) : lag(live_lag_ms);
  const bool is_overtaking = habit_.swaps && !is_peace_ && chance() < 0.05;
  const time_point arrival = is_overtaking ? now_ + delay : std::max(now_ + delay, last_arrival_ + 1us);
  if (!is_overtaking) last_arrival_ = arrival;
  plan(arrival - now_, [this, seq, payload] { deliver(seq, payload); });
}

void feed_world::answer(const feed_ask& question) {
  if (!publisher_ || now_ < cut_end_ || habit_.is_deaf || (!is_peace_ && chance() < 0.05)) {
    if (chance() < 0.5) return;
    plan(lag(50), [this, request = question.number] {
      feed_.replay_failed(request, now_);
      carry_out();
    });
    return;
  }
  if (question.kind == indexer::replay_kind::snapshot) return answer_snapshot(question.number);
  answer_batches(question);
}

void feed_world::answer_snapshot(std::uint64_t request) {
  duration delay = lag(20);
  if (!habit_.has_snapshots) {
    return plan(delay, [this, request] {
      feed_.snapshot_end(request, indexer::end_number, now_);
      carry_out();
    });
  }
  bool is_cut = !is_peace_ && chance() < habit_.cuts;
  std::vector<std::uint64_t> words{publisher_->life, endless};
  std::vector<std::vector<std::uint64_t>> frames;
  for (const std::uint64_t block : publisher_->blocks) {
    words.insert(words.end(), {store, block, 0});
    if (words.size() > 20) frames.push_back(std::exchange(words, {publisher_->life, endless}));
  }
  if (words.size() > 2) frames.push_back(words);
  for (const auto& each : frames) {
    if (is_cut && chance() < 0.3) return;
    delay += lag(3);
    plan(delay, [this, request, payload = payload_of(each)] {
      feed_.snapshot_frame(request, payload, now_);
      carry_out();
    });
  }
  if (is_cut) return;
  plan(delay + 1us, [this, request, next = publisher_->next] {
    feed_.snapshot_end(request, next, now_);
    carry_out();
  });
}

void feed_world::answer_batches(const feed_ask& question) {
  const bool is_cut = !is_peace_ && chance() < habit_.cuts;
  const bool has_hole = !is_peace_ && chance() < habit_.holes;
  const bool is_late = !is_peace_ && chance() < habit_.delays;
  duration delay = lag(20) + (is_late ? lag(2500) : 0ms);
  std::uint64_t sent = 0;
  bool is_last_sent = true;
  for (const auto& [seq, payload] : publisher_->ring) {
    if (seq < question.start) continue;
    if (is_cut && chance() < 0.05) return;
    is_last_sent = !has_hole || sent == 0 || chance() < 0.9;  // a queue was full: it never is for the first one
    if (!is_last_sent) continue;
    ++sent;
    delay += chance() < 0.05 ? lag(20) : lag(1);
    const std::uint64_t copies = !is_peace_ && chance() < habit_.doubles ? 2 : 1;
    for (std::uint64_t each = 0; each < copies; ++each) {
      plan(delay + each * 1us, [this, request = question.number, seq = seq, payload = payload] {
        feed_.replay_frame(request, seq, payload, now_);
        carry_out();
      });
    }
  }
  if (!is_last_sent || (is_cut && chance() < 0.8)) return;
  plan(delay + 5us, [this, request = question.number] {
    feed_.replay_end(request, now_);
    carry_out();
  });
}

// ---------------------------------------------------------------------------------------------- the owner

void feed_world::notice(bool is_connected, std::uint64_t life) {
  if (life != lives_ || (is_connected && (!publisher_ || now_ < cut_end_))) return;
  if (is_connected && now_ < publisher_->begin + notice_after) return;  // another notice follows
  if (!is_connected && publisher_ && publisher_->life == life && now_ >= cut_end_) return;
  show(is_connected ? "connected" : "disconnected");
  if (is_connected) {
    away_since_ = time_point::max();
    connected_next_ = publisher_->next;
    feed_.connected(now_);
  } else {
    if (away_since_ == time_point::max()) away_since_ = now_;
    feed_.disconnected(now_);
  }
  carry_out();
}

void feed_world::deliver(std::uint64_t seq, const batch_payload& payload) {
  if (options_.shows) show("live " + std::to_string(seq) + " of life " + std::to_string(words_of(payload)[0]));
  const std::uint64_t life = words_of(payload)[0];
  if (life == lives_) delivered_next_ = std::max(delivered_next_, seq + 1);
  if (habit_.is_bound && feed_.mark().state == indexer::publisher_state::connecting) feed_.connected(now_);
  feed_.live(seq, payload, now_);
  carry_out();
}

void feed_world::carry_out() {
  for (auto commands = feed_.take_commands(); !commands.empty(); commands = feed_.take_commands()) {
    for (const auto& each : commands) {
      if (const auto* const batch = std::get_if<feed_apply>(&each)) apply(*batch);
      if (const auto* const order = std::get_if<feed_clear>(&each)) {
        show("clear: " + std::string(name_of(order->reason)));
        blocks_.clear();
        names_.clear();
        last_life_ = 0;
      }
      if (const auto* const question = std::get_if<feed_ask>(&each)) {
        show("ask " + std::to_string(question->number) + " " + std::string(name_of(question->kind)) + " " +
             std::to_string(question->start));
        plan(lag(20), [this, question = *question] { answer(question); });
      }
      if (const auto* const over = std::get_if<indexer::feed_stop>(&each)) show("stop " + std::to_string(over->number));
      if (const auto* const mark = std::get_if<indexer::feed_mark>(&each)) show(std::string(name_of(mark->state)));
    }
    if (std::exchange(has_unknown_parent_, false)) feed_.unknown_parent(now_);
  }
  set_alarm();
}

void feed_world::apply(const feed_apply& batch) {
  const auto words = words_of(batch.payload);
  last_life_ = words[0];
  if (options_.shows)
    show("apply " + std::string(name_of(batch.source)) + " " + std::to_string(batch.seq) + " of life " +
         std::to_string(words[0]));
  if (batch.source != indexer::batch_source::snapshot && words[1] != batch.seq) fail("a batch has another's number");
  for (std::size_t i = 2; i + 2 < words.size(); i += 3) {
    const event each{words[i], words[i + 1], words[i + 2]};
    if (each.kind == store && each.parent != 0 && !names_.contains(each.parent)) {
      has_unknown_parent_ = true;
    } else if (each.kind == store) {
      blocks_.insert(each.block);
      names_.insert(each.block);
    } else if (each.kind == removal) {
      blocks_.erase(each.block);
    } else {
      blocks_.clear();
      feed_.all_cleared(batch.turn, now_);
    }
  }
}

// ---------------------------------------------------------------------------------------------- faults and checks

void feed_world::fault() {
  if (habit_.faults == 0) return;
  if (habit_.faults != endless) --habit_.faults;
  const double draw = chance();
  if (draw < 0.1 && publisher_ && !habit_.is_bound && now_ >= cut_end_) {  // the connection goes first, for a moment
    feed_.disconnected(now_);
    notice(true, lives_);
    plan(60ms, [this] {
      if (publisher_) kill_process();
    });
  } else if (draw < 0.5 && publisher_) {
    kill_process();
  } else if (draw < 0.8) {
    cut_end_ = now_ + lag(4000);
    show("cut");
    if (habit_.is_bound) return;
    plan(notice_after + lag(100), [this, life = lives_] { notice(false, life); });
    plan(cut_end_ - now_ + notice_after + lag(200), [this] { notice(true, lives_); });
  } else if (publisher_) {  // more than its ring holds, maybe, and nothing of it arrives
    for (std::uint64_t count = number(50); count > 0; --count) publish_some(chance() < 0.7);
  }
}

void feed_world::work() {
  if (publisher_ && now_ >= pause_end_ && !habit_.is_idle) publish_some();
}

std::optional<std::string> feed_world::run() {
  start_process(chance() < 0.5);
  if (chance() < 0.7) {
    for (std::uint64_t count = number(60); count > 0; --count) publish_some(true);
  }
  for (duration time = 10ms; time < faults_for; time += std::chrono::milliseconds(5 + number(60)))
    plan(time, [this] { work(); });
  for (duration time = 500ms; time < faults_for; time += std::chrono::milliseconds(200 + number(3000)))
    plan(time, [this] { fault(); });
  run_until(start_ + faults_for);
  show("peace");
  is_peace_ = true;
  run_until(std::max(now_ + 6s, cut_end_ + 2s));
  if (!publisher_) start_process(false);
  run_until(now_ + peace_for);
  if (!failure_) check_quiet();
  for (std::uint64_t i = 0; i < 8 && !failure_; ++i) {
    publish({{store, publisher_->tag + 500 + i, publisher_->tag + root}}, false);
    run_until(now_ + 1500ms);
  }
  run_until(now_ + peace_for);
  publish({{store, publisher_->tag + 600, publisher_->tag + root}}, false);
  run_until(now_ + 5s);
  if (!failure_) check_peace();
  return failure_;
}

void feed_world::check() {
  if (feed_.waiting_bytes() > followed_.waiting_bytes) fail("more waits than there is room for");
  const bool is_long_gone = away_since_ != time_point::max() && now_ - away_since_ > followed_.grace + 100ms;
  if (is_long_gone && feed_.mark().is_in_answers) fail("an absent publisher is in answers");
}

/// Before the publisher goes on: all that came to the feed is settled, be it the publisher's last batch or not.
void feed_world::check_quiet() {
  const auto mark = feed_.mark();
  const bool is_settled =
      mark.state == indexer::publisher_state::live || mark.state == indexer::publisher_state::degraded;
  if (habit_.is_deaf || (habit_.is_bound && mark.state == indexer::publisher_state::connecting)) return;
  if (!is_settled) return fail("it is " + std::string(name_of(mark.state)) + " while nothing happens");
  const std::uint64_t end = feed_.last_applied() ? *feed_.last_applied() + 1 : 0;
  if (end < delivered_next_) return fail("a batch that came is missing, and nothing is done about that");
  if (habit_.is_bound || mark.is_degraded) return;
  if (end < connected_next_)
    return fail("a batch from before the connection is missing, and nothing is done about that");
  if (last_life_ != 0 && last_life_ != lives_)
    return fail("it follows an earlier life, although it was connected since");
  std::set<std::uint64_t> past = publisher_->survivors;
  for (std::uint64_t seq = 0; seq < std::min<std::uint64_t>(end, publisher_->log.size()); ++seq) {
    for (const event& each : publisher_->log[seq]) change(past, each);
  }
  if (end > publisher_->log.size() || past != blocks_) fail("the index is not what the publisher had at that batch");
}

void feed_world::check_peace() {
  const auto mark = feed_.mark();
  ++(mark.is_degraded ? figures_.degraded : figures_.equal);
  const auto& published = publisher_->blocks;
  const auto describe = [&] {
    std::string text = " (next " + std::to_string(publisher_->next) + ", index:";
    for (const std::uint64_t each : blocks_) text += " " + std::to_string(each);
    text += ", publisher:";
    for (const std::uint64_t each : published) text += " " + std::to_string(each);
    return text + ")";
  };
  if (!std::ranges::includes(published, blocks_))
    return fail("the index has blocks that the publisher has not" + describe());
  if (!mark.is_degraded && blocks_ != published) return fail("the index lacks blocks without a word" + describe());
  const bool can_have_all = (habit_.ring == endless || habit_.has_snapshots) && !habit_.is_deaf;
  if (mark.is_degraded && can_have_all) return fail("it is degraded although all can be had" + describe());
  const bool is_settled =
      mark.state == indexer::publisher_state::live || mark.state == indexer::publisher_state::degraded;
  if (!is_settled || feed_.waiting_bytes() != 0) return fail("it is " + std::string(name_of(mark.state)) + " in peace");
  const bool has_new = blocks_.contains(publisher_->tag + 600);
  if (!has_new && names_.contains(publisher_->tag + root)) return fail("the last block is not there" + describe());
}

feed_figures feed_world::figures() const {
  feed_figures all = figures_;
  const auto& counters = feed_.counters();
  all.applied = counters.applied, all.replayed = counters.replayed, all.snapshots = counters.snapshot;
  all.gaps = counters.gaps, all.doubles = counters.doubles, all.restarts = counters.restarts;
  all.losses = counters.lost_batches == 0 ? 0 : 1, all.asks = counters.asks, all.failures = counters.failures;
  all.late_frames = counters.late_frames, all.unconfirmed = counters.unconfirmed,
  all.dropped = counters.dropped_bytes == 0 ? 0 : 1;
  all.parents = counters.unknown_parents;
  return all;
}

void feed_world::fail(const std::string& message) {
  if (failure_) return;
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - start_).count();
  failure_ = "at " + std::to_string(time) + " ms: " + message;
}

void feed_world::show(const std::string& message) {
  if (!options_.shows) return;
  std::cout << std::chrono::duration_cast<std::chrono::microseconds>(now_ - start_).count() << " us: " << message
            << '\n';
}

}  // namespace cenote::testing
