#include "tiers/prefetch/planner.hpp"

#include <algorithm>
#include <iterator>

namespace cenote::prefetch {

namespace {

using memory::prefetch_policy;

constexpr std::size_t command_keys = 256;  // of one command: the tier is busy for some tens of microseconds
constexpr auto retry_after = std::chrono::milliseconds(100);
constexpr double in_flight_seconds = 0.1;        // of a chain that may be cut: what is under way cannot be taken back
constexpr std::uint64_t speculative_blocks = 8;  // under way at once: what is wanted does not wait long behind them
constexpr std::uint64_t least_in_flight = 4;     // blocks
constexpr std::uint64_t probe_blocks = 16;       // the most of a window that measures,
constexpr std::uint64_t probe_blocks_least = 8;  // the least, where
constexpr double probe_seconds = 0.05;           // … the speed of some time ago says that this takes longer
constexpr nanoseconds probe_limit = std::chrono::seconds(1);  // to be asked for
constexpr double worth_a_try = 0.1;                           // of the recomputation: less to lose is not worth a wait
constexpr double own_probe =
    0.15;  // of the recomputation: what a prefetch may lose to measure a device that did not pay
constexpr std::size_t most_engines = 4096;  // instances of which something is known
constexpr double forever = 1e9;             // seconds: more does not fit a duration
constexpr nanoseconds shortest_look = std::chrono::milliseconds(1);
constexpr nanoseconds longest_look = std::chrono::milliseconds(20);

nanoseconds time_of(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(std::min(seconds, forever)));
}

/// Chained keys: two that are equal have equal keys before them.
std::size_t common_prefix(const std::vector<full_key>& a, const std::vector<full_key>& b) {
  std::size_t low = 0;
  std::size_t high = std::min(a.size(), b.size());
  while (low < high) {
    const std::size_t middle = low + (high - low) / 2;
    if (a[middle] == b[middle]) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace

planner::job* planner::find(std::uint64_t number) noexcept {
  const auto found = jobs_.find(number);
  return found == jobs_.end() ? nullptr : &found->second;
}

// ---------------------------------------------------------------------------------------------- what sessions say

void planner::on_request(request incoming, time_point now) {
  if (incoming.what != request::kind::start) return on_cancel(incoming);
  const auto gathered = gathering_.find(incoming.session);
  if (gathered != gathering_.end()) {
    request& whole = gathered->second;
    const bool goes_on = incoming.terms.chain != 0 && whole.terms.chain == incoming.terms.chain &&
                         whole.group == incoming.group && whole.instance == incoming.instance;
    if (goes_on && whole.too_long) {
      incoming.too_long = true;
    } else if (goes_on) {
      const std::size_t more = std::min(incoming.keys.size(), max_chain - std::min(max_chain, whole.keys.size()));
      whole.keys.insert(whole.keys.end(), incoming.keys.begin(),
                        incoming.keys.begin() + static_cast<std::ptrdiff_t>(more));
      whole.places.insert(whole.places.end(), incoming.places.begin(),
                          incoming.places.begin() + static_cast<std::ptrdiff_t>(more));
      whole.number = incoming.number;
      whole.terms = incoming.terms;
      incoming = std::move(whole);
    }
    gathering_.erase(gathered);
  }
  if (incoming.terms.more) {
    incoming.too_long |= !has_room_for(incoming);
    if (incoming.too_long) {
      incoming.keys = {};
      incoming.places = {};
    }
    gathering_.insert_or_assign(incoming.session, std::move(incoming));
  } else {
    begin(std::move(incoming), now);
  }
}

/// Of a prefetch that is over, or of none, it changes nothing.
void planner::on_cancel(const request& incoming) {
  if (incoming.chain == 0) return;
  const bool cancels = incoming.what == request::kind::end;
  for (auto& [number, each] : jobs_) {
    if (each.session != incoming.session || each.chain != incoming.chain) continue;
    if (cancels) {
      each.stop_reason = reason::cancelled;
      each.hold = false;
    } else if (each.stoppable && !each.stop_reason) {
      each.stop_reason = reason::stopped;
    }
  }
  if (!cancels) return;
  const auto gathered = gathering_.find(incoming.session);
  if (gathered != gathering_.end() && gathered->second.terms.chain == incoming.chain) gathering_.erase(gathered);
  const auto held = std::ranges::find_if(held_, [&](const auto& each) {
    return each.second.session == incoming.session && each.second.chain == incoming.chain;
  });
  if (held != held_.end()) let_go(held->first);
}

void planner::refuse(const request& incoming, error_code code) {
  ++counts_.refused;
  answer made{.session = incoming.session, .completion = {}};
  made.completion.request = incoming.number;
  made.completion.kind = memory::completion_kind::done;
  made.completion.code = static_cast<std::uint16_t>(code);
  answers_.push_back(made);
}

std::size_t planner::open_of(std::uint64_t session) const noexcept {
  const auto its = [&](const auto& each) { return each.second.session == session; };
  return static_cast<std::size_t>(std::ranges::count_if(jobs_, its) + std::ranges::count_if(held_, its));
}

/// Keys take memory until their prefetch is answered, whoever waits for it.
bool planner::has_room_for(const request& incoming) const noexcept {
  std::size_t all = incoming.keys.size();
  std::size_t own = incoming.keys.size();
  for (const auto& [number, each] : jobs_) {
    all += each.keys->size();
    own += each.session == incoming.session ? each.keys->size() : 0;
  }
  for (const auto& [session, each] : gathering_) all += session == incoming.session ? 0 : each.keys.size();
  return own <= max_keys_of_session && all <= max_keys;
}

void planner::begin(request incoming, time_point now) {
  if (open_of(incoming.session) >= max_of_session || incoming.too_long || !has_room_for(incoming))
    return refuse(incoming, error_code::limit_exceeded);
  const auto same = [&](const auto& each) {
    return each.second.session == incoming.session && each.second.chain == incoming.terms.chain;
  };
  const bool known = std::ranges::any_of(jobs_, same) || std::ranges::any_of(held_, same);
  if (incoming.terms.chain != 0 && known) return refuse(incoming, error_code::invalid_argument);
  ++counts_.started;
  counts_.wanted += incoming.keys.size();
  end_speculation();
  job made = make_job(incoming, now);
  if (options_.read_ahead > 0) {
    continuations_.learn(made.session, made.instance, made.group, made.keys, options_.read_ahead);
  }
  if (made.recompute > 0) {
    find_shared(made);
    join_loads(made);
    open_account(made, now);
  }
  jobs_.emplace(made.number, std::move(made));
}

planner::job planner::make_job(request& incoming, time_point now) {
  job made;
  made.number = next_job_++;
  made.session = incoming.session;
  made.request = incoming.number;
  made.chain = incoming.terms.chain;
  made.instance = incoming.instance;
  made.group = incoming.group;
  made.stride = incoming.stride;
  made.hold = incoming.terms.hold && incoming.terms.chain != 0;
  made.places = std::move(incoming.places);
  made.keys = std::make_shared<const std::vector<full_key>>(std::move(incoming.keys));

  made.end = made.places.size();
  skip_resident(made);
  const auto absent = std::ranges::find(made.places, place::absent);
  if (absent != made.places.end()) {
    truncate_at(made, static_cast<std::size_t>(absent - made.places.begin()), reason::absent);
  }
  const std::uint64_t tokens = (made.end - made.prefix) * incoming.tokens_per_block;
  const std::uint64_t threshold = incoming.terms.threshold_tokens.value_or(options_.threshold_tokens);
  if (tokens > 0 && tokens < threshold) truncate_at(made, made.prefix, reason::below_threshold);
  made.left = static_cast<std::uint64_t>(
      std::count(made.places.begin(), made.places.begin() + static_cast<std::ptrdiff_t>(made.end), place::lower_tier));

  const double rate = rate_for(incoming);
  if (rate > 0) made.recompute = static_cast<double>(incoming.tokens_per_block) / rate;
  const prefetch_policy policy =
      incoming.terms.policy == prefetch_policy::node_default ? options_.policy : incoming.terms.policy;
  made.stoppable = policy == prefetch_policy::best_effort;
  made.deadline = now + options_.limit;
  if (policy == prefetch_policy::timeout) {
    const nanoseconds base = incoming.terms.base ? nanoseconds(*incoming.terms.base) : options_.base;
    const nanoseconds per_ki =
        incoming.terms.per_ki_token ? nanoseconds(*incoming.terms.per_ki_token) : options_.per_ki_token;
    const double seconds = seconds_of(base) + seconds_of(per_ki) * static_cast<double>(tokens) / 1024;
    if (seconds < seconds_of(options_.limit)) made.deadline = now + time_of(seconds);
  }
  return made;
}

/// Ranks of one engine ask for the same chain at the same time: what the older job loads costs the younger nothing.
void planner::find_shared(job& of) const {
  for (const auto& [number, each] : jobs_) {
    if (each.instance != of.instance || each.group != of.group) continue;
    const std::size_t common = common_prefix(*each.keys, *of.keys);
    if (common <= of.in_common) continue;
    of.shared_with = each.number;
    of.in_common = common;
  }
}

/// The chain is all there and its engine computes on: what followed it the last time may be wanted next. Nothing of it
/// is held or answered, and the next request ends it.
void planner::read_ahead(const job& behind, time_point now) {
  if (options_.read_ahead == 0 || behind.session == 0 || behind.why != reason::complete || behind.keys->empty()) return;
  const key_list next = continuations_.after(behind.instance, behind.group, behind.keys->back());
  const bool idle = std::ranges::all_of(jobs_, [&](const auto& each) { return each.first == behind.number; });
  if (!next || !idle) return;
  job made;
  made.number = next_job_++;
  made.instance = behind.instance;
  made.group = behind.group;
  made.stride = behind.stride;
  made.keys = next;
  made.end = std::min<std::size_t>(next->size(), options_.read_ahead);
  made.places.assign(next->size(), place::lower_tier);  // the tier says what is true when it is asked
  made.left = made.end;
  made.deadline = now + options_.limit;
  jobs_.emplace(made.number, std::move(made));
}

void planner::end_speculation() {
  for (auto& [number, each] : jobs_) {
    if (each.session == 0 && !each.probe) each.stop_reason = reason::cancelled;
  }
}

void planner::on_session_closed(std::uint64_t session) {
  gathering_.erase(session);
  continuations_.forget(session);
  for (const auto& [number, each] : jobs_) {
    if (each.session != session) continue;
    ++counts_.finished;
    ++counts_.by_reason[static_cast<std::size_t>(reason::session_gone)];
    give_back(each, 0);
    discharge(each.instance, each.charged);
  }
  std::erase_if(jobs_, [&](const auto& each) { return each.second.session == session; });
  for (const auto& [number, each] : held_) {
    if (each.session == session) discharge(each.instance, each.charged);
  }
  std::erase_if(held_, [&](const auto& each) { return each.second.session == session; });
}

// ---------------------------------------------------------------------------------------------- what the tier says

void planner::on_result(const command_result& result, time_point now) {
  switch (result.what) {
    case command::kind::load: take_loads(result, now); break;
    case command::kind::finish: take_length(result, now); break;
    case command::kind::release: break;
  }
}

void planner::take_loads(const command_result& result, time_point now) {
  open_command_.reset();
  job* const of = find(result.job);  // null: its session is gone
  std::size_t key = result.first;
  for (const load_answer& each : result.loads) {
    if (each.state == load_state::loading) fly(each.token, result.job, key, now);
    if (each.state == load_state::wait) {
      blocked_ = true;
      blocked_until_ = now + retry_after;
    }
    if (of != nullptr) {
      switch (each.state) {
        case load_state::present: of->places[key] = place::present; break;
        case load_state::loading: of->places[key] = place::loading; break;
        case load_state::wait: break;
        case load_state::absent:
        case load_state::busy: truncate_at(*of, key, reason::absent); break;
        case load_state::no_space: truncate_at(*of, key, reason::no_space); break;
      }
    }
    if (each.state == load_state::present || each.state == load_state::loading) ++key;
  }
  if (of == nullptr) return;
  of->next = key;
  truncate_at(*of, of->end, of->why);
}

/// A block is under way. One that an older prefetch began costs this one nothing.
void planner::fly(std::uint64_t token, std::uint64_t number, std::size_t key, time_point now) {
  const auto [at, is_new] = loads_in_flight_.try_emplace(token);
  job* const of = find(number);
  if (is_new) {
    at->second.bytes = open_stride_;
    speed_.started(open_stride_, now);
    if (of != nullptr) {
      of->charged += open_stride_;
      charged_[of->instance] += open_stride_;
      charged_in_all_ += open_stride_;
    }
  }
  if (of == nullptr) return;
  if (!of->begun && !of->probing && of->recompute > 0 && !speed_.is_proven(now)) {
    of->probing = true;
    of->probes_at = now;
    ++counts_.probes;
    probes_.begun(now);
  }
  of->begun = true;
  at->second.wanted_by.emplace_back(number, key);
  join(at->second, number, key);
}

void planner::on_loads_finished(std::span<const transfer_outcome> ended, time_point now) {
  std::uint64_t bytes = 0;
  std::uint64_t good = 0;
  std::uint64_t loads = 0;
  for (const transfer_outcome& each : ended) {
    const auto found = loads_in_flight_.find(each.token);
    if (found == loads_in_flight_.end()) continue;
    const bool came = each.what == transfer_result::done;
    ++loads;
    bytes += found->second.bytes;
    good += came ? found->second.bytes : 0;
    ++(came ? counts_.loaded : counts_.lost);
    const bool speculative = std::ranges::all_of(found->second.wanted_by, [&](const auto& wanted) {
      const job* const of = find(wanted.first);
      return of != nullptr && of->session == 0 && !of->probe;
    });
    counts_.read_ahead += came && speculative && !found->second.wanted_by.empty() ? 1 : 0;
    for (const auto& [number, key] : found->second.wanted_by) {
      job* const of = find(number);
      if (of == nullptr) continue;
      of->places[key] = came ? place::present : place::absent;
      if (!came) truncate_at(*of, key, reason::absent);
    }
    loads_in_flight_.erase(found);
  }
  if (bytes == 0) return;
  speed_.ended(bytes, good, now, loads);
  probes_.observe(speed_, now);
}

/// What is under way for a job is under way for all that have the same key at its place.
void planner::join(load_in_flight& under_way, std::uint64_t number, std::size_t key) {
  const job* const first = find(number);
  for (auto& [other, each] : jobs_) {
    if (each.shared_with != number || key >= each.in_common || each.places[key] != place::lower_tier) continue;
    each.left -= key >= each.next && key < each.end ? 1 : 0;
    each.places[key] = place::loading;
    each.begun = true;
    each.probing = first->probing;
    each.probes_at = first->probes_at;
    under_way.wanted_by.emplace_back(other, key);
    join(under_way, other, key);
  }
}

void planner::join_loads(job& of) {
  for (auto& [token, each] : loads_in_flight_) {
    const auto same = std::ranges::find_if(each.wanted_by, [&](const auto& wanted) {
      return wanted.first == of.shared_with && wanted.second < of.in_common;
    });
    if (same == each.wanted_by.end()) continue;
    const std::size_t key = same->second;
    if (of.places[key] != place::loading) continue;
    of.begun = true;
    each.wanted_by.emplace_back(of.number, key);
  }
}

void planner::take_length(const command_result& result, time_point now) {
  const auto found = jobs_.find(result.job);
  if (found == jobs_.end()) return;
  const job& done = found->second;
  if (done.session == 0) {
    discharge(done.instance, done.charged);
    jobs_.erase(found);
    return;
  }
  read_ahead(done, now);
  if (done.recompute > 0) close_account(done, result.length, now);
  ++counts_.finished;
  ++counts_.by_reason[static_cast<std::size_t>(done.why)];
  answer made{.session = done.session, .completion = {}};
  made.completion.request = done.request;
  made.completion.kind = memory::completion_kind::done;
  made.completion.value = result.length;
  answers_.push_back(made);
  if (done.hold && result.length > 0) {
    held_.emplace(done.number, held_job{done.session, done.chain, done.instance, done.charged, now + options_.claim});
  } else {
    command back{.what = command::kind::release, .job = done.number, .session = done.session, .keys = {}};
    commands_.push_back(std::move(back));  // it may have been stopped while the tier counted
    discharge(done.instance, done.charged);
  }
  jobs_.erase(found);
}

void planner::let_go(std::uint64_t number) {
  const auto found = held_.find(number);
  if (found == held_.end()) return;
  commands_.push_back({.what = command::kind::release, .job = number, .session = found->second.session, .keys = {}});
  discharge(found->second.instance, found->second.charged);
  held_.erase(found);
}

void planner::discharge(std::uint32_t instance, std::uint64_t bytes) noexcept {
  if (bytes == 0) return;
  charged_in_all_ -= bytes;
  const auto found = charged_.find(instance);
  found->second -= bytes;
  if (found->second == 0) charged_.erase(found);
}

// ---------------------------------------------------------------------------------------------- decisions

void planner::skip_resident(job& of) noexcept {
  while (of.prefix < of.places.size() && of.places[of.prefix] == place::present) ++of.prefix;
}

/// The chain is wanted up to `key`; `why` not further. Never longer than before.
void planner::truncate_at(job& of, std::size_t key, reason why) noexcept {
  if (of.finishing) return;
  if (key < of.end) {
    of.end = key;
    of.why = why;
  }
  const auto from = of.places.begin() + static_cast<std::ptrdiff_t>(std::min(of.next, of.end));
  of.left = static_cast<std::uint64_t>(
      std::count(from, of.places.begin() + static_cast<std::ptrdiff_t>(of.end), place::lower_tier));
}

void planner::note_arrivals() {
  bool compared = false;
  for (auto& [number, each] : jobs_) {
    each.arrivals.clear();
    compared |= each.recompute > 0;
  }
  if (!compared) return;
  std::uint64_t bytes = 0;
  for (const auto& [token, each] : loads_in_flight_) {
    bytes += each.bytes;
    for (const auto& [wanting, key] : each.wanted_by) {
      if (job* const of = find(wanting); of != nullptr && of->recompute > 0) of->arrivals.emplace(key, bytes);
    }
  }
}

/// What the client says; else the operator; else what was said of this instance before; else what is assumed.
double planner::rate_for(const request& incoming) {
  engine& asks = engine_of(incoming.instance);
  if (incoming.terms.prefill_rate) {
    const std::uint64_t rate = *incoming.terms.prefill_rate;  // 0: this one is not to be compared
    if (rate > 0) asks.rate = rate;
    return static_cast<double>(rate);
  }
  if (options_.prefill_tokens_per_s > 0) return static_cast<double>(options_.prefill_tokens_per_s);
  if (asks.rate > 0) return static_cast<double>(asks.rate);
  if (options_.assumed_tokens_per_s > 0 && !std::exchange(asks.is_assumed, true)) assumed_.push_back(incoming.instance);
  return static_cast<double>(options_.assumed_tokens_per_s);
}

/// Of too many the one with the lowest number is forgotten: it begins anew.
planner::engine& planner::engine_of(std::uint32_t instance) {
  const auto [at, is_new] = engines_.try_emplace(instance);
  if (is_new && engines_.size() > most_engines) {
    engines_.erase(at == engines_.begin() ? std::next(at) : engines_.begin());
  }
  return at->second;
}

void planner::give_back(const job& of, double gained) {
  const auto found = engines_.find(of.instance);
  if (found != engines_.end()) found->second.losses.close(of.allowance, gained);
}

void planner::open_account(job& of, time_point now) {
  of.since = now;
  of.from = of.prefix;
  if (of.prefix >= of.end) return;
  of.could_save = static_cast<double>(of.end - of.from) * of.recompute;
  of.allowance = engine_of(of.instance).losses.open(of.could_save);
  ++counts_.compared;
}

void planner::close_account(const job& of, std::size_t length, time_point now) {
  if (of.could_save <= 0) return;
  const double waited = seconds_of(now - of.since);
  const double saved = static_cast<double>(std::max(length, of.from) - of.from) * of.recompute;
  give_back(of, saved - waited);
  counts_.waited_s += waited;
  counts_.recompute_s += of.could_save;
  counts_.saved_s += saved;
  counts_.lost_s += std::max(0.0, waited - saved);
}

/// Until then no more than the allowance is lost: each block that comes moves it.
time_point planner::patience_of(const job& of) noexcept {
  return of.since + time_of(static_cast<double>(of.prefix - of.from) * of.recompute + of.allowance);
}

/// Never slower than recomputing: wants no more of the chain than pays. `ahead`: bytes that older jobs will ask for.
void planner::weigh(job& of, std::uint64_t ahead, time_point now) {
  if (of.prefix >= of.end) return;
  if (now >= patience_of(of)) return refuse_or_cut(of, of.prefix, now);
  const auto speed = speed_.estimate(now);
  if (!speed) return weigh_unknown(of, now);
  const std::size_t end = best_end(of, ahead, *speed, now);
  if (end >= of.end || measures(of)) return;
  if (end == of.prefix && probes_itself(of, *speed, now)) return;
  refuse_or_cut(of, end, now);
}

/// What it loads is the window that tells how fast the device is, and that has not come.
bool planner::measures(const job& of) const noexcept {
  if (!of.probing || speed_.is_measured_since(of.probes_at)) return false;
  return !of.begun || speed_.under_way() > 0;
}

void planner::begin_probe(time_point now) {
  speed_.renew(now);
  probes_.begun(now);
  ++counts_.probes;
}

/// A measure is due, and waiting for its window loses little even if the device is no faster than it was.
bool planner::probes_itself(job& of, const forecast& speed, time_point now) {
  if (of.begun || of.probing || !probes_.is_due(speed_, now)) return false;
  const double lost = speed.until(probe_blocks_least * of.stride) - probe_blocks_least * of.recompute;
  if (lost > std::min(of.allowance, own_probe * of.could_save)) return false;
  begin_probe(now);
  of.probing = true;
  of.probes_at = now;
  return true;
}

/// Of a device that nobody knows a window is loaded, and waited for as long as may be lost.
void planner::weigh_unknown(job& of, time_point now) {
  const bool may_wait = of.allowance >= worth_a_try * of.could_save && time_of(of.allowance) >= shortest_look;
  if (!of.begun && !may_wait) refuse_or_cut(of, of.prefix, now);
}

void planner::refuse_or_cut(job& of, std::size_t end, time_point now) {
  if (end == of.prefix && !of.begun) probe_behind(of, now);
  truncate_at(of, end, of.begun ? reason::cut : reason::cannot_win);
}

/// The prefetch is answered now, and nobody waits; what is loaded behind it tells how fast the device has become.
void planner::probe_behind(const job& of, time_point now) {
  const bool one_is_open = std::ranges::any_of(jobs_, [](const auto& each) { return each.second.probe; });
  if (one_is_open || !probes_.is_due(speed_, now)) return;
  std::vector<full_key> keys;
  const std::size_t most = probe_window(of.stride) / of.stride;
  for (std::size_t i = of.prefix; i < of.end && keys.size() < most; ++i) {
    if (of.places[i] == place::lower_tier) keys.push_back((*of.keys)[i]);
  }
  if (keys.empty()) return;
  begin_probe(now);
  job made;
  made.number = next_job_++;
  made.probe = true;
  made.instance = of.instance;
  made.group = of.group;
  made.stride = of.stride;
  made.end = made.left = keys.size();
  made.places.assign(keys.size(), place::lower_tier);
  made.keys = std::make_shared<const std::vector<full_key>>(std::move(keys));
  made.deadline = now + probe_limit;
  jobs_.emplace(made.number, std::move(made));
}

/// The end of the prefix for which the time saved, less the time until it is here, is longest; of.prefix if none saves.
/// No block is waited for if that loses more, on the way, than may be lost.
std::size_t planner::best_end(const job& of, std::uint64_t ahead, const forecast& speed, time_point now) const {
  const auto older = jobs_.find(of.shared_with);
  const std::size_t shared = older == jobs_.end() ? 0 : std::min(of.in_common, older->second.end);
  const std::uint64_t in_older = older == jobs_.end() ? 0 : std::min(ahead, older->second.left * of.stride);
  const double waited = seconds_of(now - of.since);
  std::uint64_t before = 0;  // bytes that come before and with what was looked at so far
  std::uint64_t own = 0;     // … that this job asks for
  std::uint64_t with = 0;    // … that the older job asks for
  double best = 0;
  std::size_t best_at = of.prefix;
  for (std::size_t i = of.prefix; i < of.end; ++i) {
    if (of.places[i] == place::loading) {
      const auto known = of.arrivals.find(i);
      before = std::max(before, known == of.arrivals.end() ? speed_.under_way() : known->second);
    } else if (of.places[i] == place::lower_tier) {
      (i < shared ? with : own) += of.stride;
      before = std::max(before, speed_.under_way() + (i < shared ? ahead - in_older + with : ahead + own));
    }
    const double until = before > 0 ? speed.until(before) : 0;
    if (waited + until - static_cast<double>(i - of.from) * of.recompute > of.allowance) break;
    const double profit = static_cast<double>(i + 1 - of.prefix) * of.recompute - until;
    if (profit <= best) continue;
    best = profit;
    best_at = i + 1;
  }
  return best_at;
}

bool planner::is_over(job& of, time_point now) noexcept {
  if (of.prefix >= of.end) return true;
  if (of.stop_reason) {
    of.why = *of.stop_reason;
  } else if (of.deadline <= now) {
    of.why = reason::timeout;
  } else {
    return false;
  }
  of.end = of.prefix;
  of.left = 0;
  return true;
}

void planner::issue_finish(job& of) {
  of.finishing = true;
  commands_.push_back({.what = command::kind::finish,
                       .job = of.number,
                       .session = of.session,
                       .instance = of.instance,
                       .group = of.group,
                       .hold = of.hold,
                       .keys = of.keys});
}

void planner::plan(time_point now) {
  expire(now);
  note_arrivals();
  std::uint64_t ahead = 0;
  for (auto& [number, each] : jobs_) {
    if (each.finishing) continue;
    skip_resident(each);
    if (each.recompute > 0) weigh(each, ahead, now);
    if (is_over(each, now)) {
      issue_finish(each);
    } else {
      ahead += each.left * each.stride;
    }
  }
  if (blocked_ && blocked_until_ <= now) blocked_ = false;
  if (open_command_ || blocked_) return;
  for (auto& [number, each] : jobs_) {
    if (each.finishing || each.next >= each.end) continue;
    if (issue_loads(each, now) != issued::over_budget) return;  // the oldest first, always
  }
}

/// Asks for the next keys of the chain, as far as window and budgets go.
planner::issued planner::issue_loads(job& of, time_point now) {
  const std::uint64_t room = room_for(of, now);
  const std::uint64_t budget = budget_for(of);
  std::uint64_t bytes = 0;
  std::size_t at = of.next;
  issued stopped = issued::yes;
  for (; at < of.end && at - of.next < command_keys; ++at) {
    if (of.places[at] != place::lower_tier) continue;
    const bool first_of_all = bytes == 0 && speed_.under_way() == 0;  // one may always come, however small the window
    if (bytes + of.stride > room && !first_of_all) {
      stopped = issued::no_room;
      break;
    }
    if (bytes + of.stride > budget) {
      stopped = issued::over_budget;
      break;
    }
    bytes += of.stride;
  }
  if (at == of.next) {
    if (stopped == issued::over_budget && alone_in_budget(of)) truncate_at(of, at, reason::budget);
    return stopped;
  }
  open_command_ = command{.what = command::kind::load,
                          .job = of.number,
                          .session = of.session,
                          .instance = of.instance,
                          .group = of.group,
                          .hold = of.hold,
                          .keys = of.keys,
                          .first = of.next,
                          .count = at - of.next};
  open_stride_ = of.stride;
  commands_.push_back(*open_command_);
  return issued::yes;
}

/// Bytes that may be asked for now. A chain that is compared with recomputing does not fill the device far ahead, since
/// it may be cut; of a device that is not known well, a window that tells.
std::uint64_t planner::room_for(const job& of, time_point now) const {
  std::uint64_t most = options_.window;
  if (of.session == 0 && !of.probe) most = std::min(most, speculative_blocks * of.stride);
  if (of.probe || (of.recompute > 0 && (measures(of) || !speed_.is_proven(now)))) {
    most = std::min(most, probe_window(of.stride));
  } else if (of.recompute > 0) {
    const auto ahead = static_cast<std::uint64_t>(speed_.last() * (in_flight_seconds + 2 * speed_.latency()));
    most = std::min(most, std::max(least_in_flight * of.stride, ahead));
  }
  return most - std::min(most, speed_.under_way());
}

/// Bytes of a window that measures.
std::uint64_t planner::probe_window(std::uint64_t stride) const noexcept {
  if (speed_.last() == 0) return probe_blocks * stride;
  const auto by_time = static_cast<std::uint64_t>(speed_.last() * probe_seconds);
  return std::clamp(by_time, probe_blocks_least * stride, probe_blocks * stride);
}

std::uint64_t planner::budget_for(const job& of) const {
  const auto left = [](std::uint64_t limit, std::uint64_t used) {
    return limit == 0 ? ~std::uint64_t{0} : limit - std::min(limit, used);
  };
  const auto mine = charged_.find(of.instance);
  return std::min(left(options_.total_bytes, charged_in_all_),
                  left(options_.instance_bytes, mine == charged_.end() ? 0 : mine->second));
}

/// No other job will give back what this one lacks.
bool planner::alone_in_budget(const job& of) const {
  const auto lacks = [&](std::uint64_t limit, std::uint64_t used_by_it) {
    return limit != 0 && used_by_it + of.stride > limit;
  };
  return lacks(options_.total_bytes, of.charged) || lacks(options_.instance_bytes, of.charged);
}

void planner::expire(time_point now) {
  std::vector<std::uint64_t> late;
  for (const auto& [number, each] : held_) {
    if (each.until <= now) late.push_back(number);
  }
  counts_.unclaimed += late.size();
  for (const std::uint64_t number : late) let_go(number);
}

std::optional<time_point> planner::wake_at(time_point now) const noexcept {
  std::optional<time_point> next;
  const auto sooner = [&](time_point at) { next = next ? std::min(*next, at) : at; };
  for (const auto& [number, each] : jobs_) {
    if (each.finishing) continue;
    sooner(each.deadline);
    if (each.prefix >= each.end) sooner(now);
    if (each.recompute <= 0) continue;
    if (each.could_save > 0) sooner(std::max(now, patience_of(each)));
    if (speed_.under_way() > 0) sooner(now + std::clamp(time_of(each.recompute / 4), shortest_look, longest_look));
  }
  for (const auto& [number, each] : held_) sooner(each.until);
  if (blocked_) sooner(blocked_until_);
  return next;
}

prefetch::status planner::status(time_point now) const {
  prefetch::status all = counts_;
  all.bytes_in_flight = speed_.under_way();
  all.waiting = static_cast<std::uint64_t>(
      std::ranges::count_if(jobs_, [](const auto& each) { return each.second.session != 0; }));
  all.held = held_.size();
  all.bytes_per_s = speed_.last();
  all.latency_s = speed_.latency();
  all.measured_age_s = seconds_of(speed_.age(now).value_or(nanoseconds(0)));
  return all;
}

}  // namespace cenote::prefetch
