#include "tiers/prefetch/planner.hpp"

#include <algorithm>
#include <iterator>

namespace cenote::prefetch {

namespace {

using memory::prefetch_policy;

constexpr std::size_t command_keys =
    256;  // most keys of a load command: some tens of microseconds of the tier's thread
constexpr auto retry_after = std::chrono::milliseconds(100);
constexpr double in_flight_seconds = 0.1;        // loads in flight of a chain that may be cut: they cannot be cancelled
constexpr std::uint64_t speculative_blocks = 8;  // in flight at a time: a real request waits for no more than these
constexpr std::uint64_t least_in_flight = 4;     // blocks
// The window of loads that measures a device: as many blocks as took probe_seconds at the last speed, within these.
constexpr std::uint64_t probe_blocks = 16;
constexpr std::uint64_t probe_blocks_least = 8;
constexpr double probe_seconds = 0.05;
constexpr nanoseconds probe_limit = std::chrono::seconds(1);  // a probe that could not be submitted by then is dropped
constexpr double worth_a_try = 0.1;  // share of could_save: with less allowance a measurement is not waited for
constexpr double own_probe =
    0.15;  // share of could_save: what a job may lose to measure again a device that was too slow
constexpr std::size_t most_engines = 4096;
constexpr double forever = 1e9;  // seconds: more does not fit a duration
constexpr nanoseconds shortest_look = std::chrono::milliseconds(1);
constexpr nanoseconds longest_look = std::chrono::milliseconds(20);

nanoseconds time_of(double seconds) {
  return std::chrono::duration_cast<nanoseconds>(std::chrono::duration<double>(std::min(seconds, forever)));
}

/// By binary search: keys are chained hashes, so where two are equal all before them are.
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

planner::prefetch_job* planner::find(std::uint64_t number) noexcept {
  const auto found = jobs_.find(number);
  return found == jobs_.end() ? nullptr : &found->second;
}

// ---------------------------------------------------------------------------------------------- requests of sessions

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
    incoming.too_long |= !fits_key_limits(incoming);
    if (incoming.too_long) {
      incoming.keys = {};
      incoming.places = {};
    }
    gathering_.insert_or_assign(incoming.session, std::move(incoming));
  } else {
    begin_job(std::move(incoming), now);
  }
}

/// `stop` and `end`: ignored when the session has no such prefetch (any more).
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
  if (held != held_.end()) release_hold(held->first);
}

void planner::refuse(const request& incoming, error_code code) {
  ++counts_.refused;
  answer made{.session = incoming.session, .completion = {}};
  made.completion.request = incoming.number;
  made.completion.kind = memory::completion_kind::done;
  made.completion.code = static_cast<std::uint16_t>(code);
  answers_.push_back(made);
}

std::size_t planner::open_prefetches_of(std::uint64_t session) const noexcept {
  const auto is_own = [&](const auto& each) { return each.second.session == session; };
  return static_cast<std::size_t>(std::ranges::count_if(jobs_, is_own) + std::ranges::count_if(held_, is_own));
}

/// Bounds the memory of keys, which live until their prefetch is answered: a session's, and all.
bool planner::fits_key_limits(const request& incoming) const noexcept {
  std::size_t all = incoming.keys.size();
  std::size_t own = incoming.keys.size();
  for (const auto& [number, each] : jobs_) {
    all += each.keys->size();
    own += each.session == incoming.session ? each.keys->size() : 0;
  }
  for (const auto& [session, each] : gathering_) all += session == incoming.session ? 0 : each.keys.size();
  return own <= max_session_keys && all <= max_keys;
}

void planner::begin_job(request incoming, time_point now) {
  if (open_prefetches_of(incoming.session) >= max_session_prefetches || incoming.too_long || !fits_key_limits(incoming))
    return refuse(incoming, error_code::limit_exceeded);
  const auto same = [&](const auto& each) {
    return each.second.session == incoming.session && each.second.chain == incoming.terms.chain;
  };
  const bool known = std::ranges::any_of(jobs_, same) || std::ranges::any_of(held_, same);
  if (incoming.terms.chain != 0 && known) return refuse(incoming, error_code::invalid_argument);
  ++counts_.started;
  counts_.wanted += incoming.keys.size();
  end_speculation();
  prefetch_job made = make_job(incoming, now);
  if (options_.read_ahead > 0) {
    continuations_.learn(made.session, made.instance, made.group, made.keys, options_.read_ahead);
  }
  if (made.recompute > 0) {
    find_shared(made);
    share_loads_in_flight(made);
    open_account(made, now);
  }
  jobs_.emplace(made.number, std::move(made));
}

planner::prefetch_job planner::make_job(request& incoming, time_point now) {
  prefetch_job made;
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
  made.loads_left = static_cast<std::uint64_t>(
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

/// Finds the older job whose chain has the longest prefix in common (ranks of an engine ask for the same chain at the
/// same time): loads within that prefix are shared with it.
void planner::find_shared(prefetch_job& job) const {
  for (const auto& [number, each] : jobs_) {
    if (each.instance != job.instance || each.group != job.group) continue;
    const std::size_t common = common_prefix(*each.keys, *job.keys);
    if (common <= job.in_common) continue;
    job.shared_with = each.number;
    job.in_common = common;
  }
}

/// Speculative prefetch: the chain is complete, so what followed it the last time is loaded while nothing else is to
/// be. Nothing of it is held or answered, and the next request cancels it.
void planner::read_ahead(const prefetch_job& behind, time_point now) {
  if (options_.read_ahead == 0 || behind.session == 0 || behind.end_reason != reason::complete || behind.keys->empty())
    return;
  const key_list next = continuations_.after(behind.instance, behind.group, behind.keys->back());
  const bool idle = std::ranges::all_of(jobs_, [&](const auto& each) { return each.first == behind.number; });
  if (!next || !idle) return;
  prefetch_job made;
  made.number = next_job_++;
  made.instance = behind.instance;
  made.group = behind.group;
  made.stride = behind.stride;
  made.keys = next;
  made.end = std::min<std::size_t>(next->size(), options_.read_ahead);
  made.places.assign(next->size(), place::lower_tier);  // the tier says what is true when it is asked
  made.loads_left = made.end;
  made.deadline = now + options_.limit;
  jobs_.emplace(made.number, std::move(made));
}

void planner::end_speculation() {
  for (auto& [number, each] : jobs_) {
    if (each.session == 0 && !each.measures_only) each.stop_reason = reason::cancelled;
  }
}

void planner::on_session_closed(std::uint64_t session) {
  gathering_.erase(session);
  continuations_.forget(session);
  for (const auto& [number, each] : jobs_) {
    if (each.session != session) continue;
    ++counts_.finished;
    ++counts_.by_reason[static_cast<std::size_t>(reason::session_gone)];
    return_allowance(each, 0);
    refund(each.instance, each.charged);
  }
  std::erase_if(jobs_, [&](const auto& each) { return each.second.session == session; });
  for (const auto& [number, each] : held_) {
    if (each.session == session) refund(each.instance, each.charged);
  }
  std::erase_if(held_, [&](const auto& each) { return each.second.session == session; });
}

// ---------------------------------------------------------------------------------------------- results of the tier

void planner::on_result(const command_result& result, time_point now) {
  switch (result.what) {
    case command::kind::load: on_load_result(result, now); break;
    case command::kind::finish: on_finish_result(result, now); break;
    case command::kind::release: break;
  }
}

void planner::on_load_result(const command_result& result, time_point now) {
  open_command_.reset();
  prefetch_job* const job = find(result.job);  // null: its session is gone
  std::size_t key = result.first;
  for (const load_answer& each : result.loads) {
    if (each.state == load_state::loading) track_load(each.token, result.job, key, now);
    if (each.state == load_state::wait) {
      blocked_ = true;
      blocked_until_ = now + retry_after;
    }
    if (job != nullptr) {
      switch (each.state) {
        case load_state::present: job->places[key] = place::present; break;
        case load_state::loading: job->places[key] = place::loading; break;
        case load_state::wait: break;
        case load_state::absent:
        case load_state::busy: truncate_at(*job, key, reason::absent); break;
        case load_state::no_space: truncate_at(*job, key, reason::no_space); break;
      }
    }
    if (each.state == load_state::present || each.state == load_state::loading) ++key;
  }
  if (job == nullptr) return;
  job->next = key;
  truncate_at(*job, job->end, job->end_reason);
}

/// Notes that a load of the key is in flight. Its bytes are charged to the job that began it alone.
void planner::track_load(std::uint64_t token, std::uint64_t number, std::size_t key, time_point now) {
  const auto [load, is_new] = loads_in_flight_.try_emplace(token);
  prefetch_job* const job = find(number);
  if (is_new) {
    load->second.bytes = open_stride_;
    speed_.started(open_stride_, now);
    if (job != nullptr) {
      job->charged += open_stride_;
      charged_[job->instance] += open_stride_;
      charged_in_all_ += open_stride_;
    }
  }
  if (job == nullptr) return;
  if (!job->has_loads && !job->waits_for_window && job->recompute > 0 && !speed_.is_proven(now)) {
    job->waits_for_window = true;
    job->measuring_since = now;
    ++counts_.probes;
    probes_.begun(now);
  }
  job->has_loads = true;
  load->second.wanted_by.emplace_back(number, key);
  share_load(load->second, number, key);
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
      const prefetch_job* const job = find(wanted.first);
      return job != nullptr && job->session == 0 && !job->measures_only;
    });
    counts_.read_ahead += came && speculative && !found->second.wanted_by.empty() ? 1 : 0;
    for (const auto& [number, key] : found->second.wanted_by) {
      prefetch_job* const job = find(number);
      if (job == nullptr) continue;
      job->places[key] = came ? place::present : place::absent;
      if (!came) truncate_at(*job, key, reason::absent);
    }
    loads_in_flight_.erase(found);
  }
  if (bytes == 0) return;
  speed_.ended(bytes, good, now, loads);
  probes_.observe(speed_, now);
}

/// Adds every younger job whose common prefix with this job holds the key to those that wait for the load.
void planner::share_load(load_in_flight& under_way, std::uint64_t number, std::size_t key) {
  const prefetch_job* const first = find(number);
  for (auto& [other, each] : jobs_) {
    if (each.shared_with != number || key >= each.in_common || each.places[key] != place::lower_tier) continue;
    each.loads_left -= key >= each.next && key < each.end ? 1 : 0;
    each.places[key] = place::loading;
    each.has_loads = true;
    each.waits_for_window = first->waits_for_window;
    each.measuring_since = first->measuring_since;
    under_way.wanted_by.emplace_back(other, key);
    share_load(under_way, other, key);
  }
}

void planner::share_loads_in_flight(prefetch_job& job) {
  for (auto& [token, each] : loads_in_flight_) {
    const auto same = std::ranges::find_if(each.wanted_by, [&](const auto& wanted) {
      return wanted.first == job.shared_with && wanted.second < job.in_common;
    });
    if (same == each.wanted_by.end()) continue;
    const std::size_t key = same->second;
    if (job.places[key] != place::loading) continue;
    job.has_loads = true;
    each.wanted_by.emplace_back(job.number, key);
  }
}

void planner::on_finish_result(const command_result& result, time_point now) {
  const auto found = jobs_.find(result.job);
  if (found == jobs_.end()) return;
  const prefetch_job& done = found->second;
  if (done.session == 0) {
    refund(done.instance, done.charged);
    jobs_.erase(found);
    return;
  }
  read_ahead(done, now);
  if (done.recompute > 0) close_account(done, result.length, now);
  ++counts_.finished;
  ++counts_.by_reason[static_cast<std::size_t>(done.end_reason)];
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
    refund(done.instance, done.charged);
  }
  jobs_.erase(found);
}

void planner::release_hold(std::uint64_t number) {
  const auto found = held_.find(number);
  if (found == held_.end()) return;
  commands_.push_back({.what = command::kind::release, .job = number, .session = found->second.session, .keys = {}});
  refund(found->second.instance, found->second.charged);
  held_.erase(found);
}

void planner::refund(std::uint32_t instance, std::uint64_t bytes) noexcept {
  if (bytes == 0) return;
  charged_in_all_ -= bytes;
  const auto found = charged_.find(instance);
  found->second -= bytes;
  if (found->second == 0) charged_.erase(found);
}

// ---------------------------------------------------------------------------------------------- decisions

void planner::skip_resident(prefetch_job& job) noexcept {
  while (job.prefix < job.places.size() && job.places[job.prefix] == place::present) ++job.prefix;
}

/// Shortens what is wanted of the chain to the keys before `key`, for the reason `why`; never lengthens it.
void planner::truncate_at(prefetch_job& job, std::size_t key, reason why) noexcept {
  if (job.finishing) return;
  if (key < job.end) {
    job.end = key;
    job.end_reason = why;
  }
  const auto from = job.places.begin() + static_cast<std::ptrdiff_t>(std::min(job.next, job.end));
  job.loads_left = static_cast<std::uint64_t>(
      std::count(from, job.places.begin() + static_cast<std::ptrdiff_t>(job.end), place::lower_tier));
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
      if (prefetch_job* const job = find(wanting); job != nullptr && job->recompute > 0)
        job->arrivals.emplace(key, bytes);
    }
  }
}

/// The prefill rate: what the request says; else the configuration; else what a request of the instance said before;
/// else assumed_tokens_per_s.
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

/// Of more than most_engines the one with the lowest instance number is forgotten.
planner::engine& planner::engine_of(std::uint32_t instance) {
  const auto [found, is_new] = engines_.try_emplace(instance);
  if (is_new && engines_.size() > most_engines) {
    engines_.erase(found == engines_.begin() ? std::next(found) : engines_.begin());
  }
  return found->second;
}

void planner::return_allowance(const prefetch_job& job, double gained) {
  const auto found = engines_.find(job.instance);
  if (found != engines_.end()) found->second.losses.close(job.allowance, gained);
}

void planner::open_account(prefetch_job& job, time_point now) {
  job.since = now;
  job.first_prefix = job.prefix;
  if (job.prefix >= job.end) return;
  job.could_save = static_cast<double>(job.end - job.first_prefix) * job.recompute;
  job.allowance = engine_of(job.instance).losses.open(job.could_save);
  ++counts_.compared;
}

void planner::close_account(const prefetch_job& job, std::size_t length, time_point now) {
  if (job.could_save <= 0) return;
  const double waited = seconds_of(now - job.since);
  const double saved = static_cast<double>(std::max(length, job.first_prefix) - job.first_prefix) * job.recompute;
  return_allowance(job, saved - waited);
  counts_.waited_s += waited;
  counts_.recompute_s += job.could_save;
  counts_.saved_s += saved;
  counts_.lost_s += std::max(0.0, waited - saved);
}

/// The time until which waiting is slower than recomputing by no more than the allowance. Each block that arrives moves
/// it.
time_point planner::latest_wait_of(const prefetch_job& job) noexcept {
  return job.since + time_of(static_cast<double>(job.prefix - job.first_prefix) * job.recompute + job.allowance);
}

/// Cuts the chain where recomputing the rest is faster than loading it. `ahead`: bytes that older jobs will load first.
void planner::compare_with_recompute(prefetch_job& job, std::uint64_t ahead, time_point now) {
  if (job.prefix >= job.end) return;
  if (now >= latest_wait_of(job)) return refuse_or_cut(job, job.prefix, now);
  const auto speed = speed_.estimate(now);
  if (!speed) return allow_measuring(job, now);
  const std::size_t end = best_end(job, ahead, *speed, now);
  if (end >= job.end || is_measuring(job)) return;
  if (end == job.prefix && becomes_probe(job, *speed, now)) return;
  refuse_or_cut(job, end, now);
}

/// True while its first loads measure the device, and not all of them have arrived.
bool planner::is_measuring(const prefetch_job& job) const noexcept {
  if (!job.waits_for_window || speed_.is_measured_since(job.measuring_since)) return false;
  return !job.has_loads || speed_.under_way() > 0;
}

void planner::begin_probe(time_point now) {
  speed_.renew(now);
  probes_.begun(now);
  ++counts_.probes;
}

/// Lets the job measure the device if that is due, and if waiting for the window costs little at the last known speed.
bool planner::becomes_probe(prefetch_job& job, const forecast& speed, time_point now) {
  if (job.has_loads || job.waits_for_window || !probes_.is_due(speed_, now)) return false;
  const double lost = speed.until(probe_blocks_least * job.stride) - probe_blocks_least * job.recompute;
  if (lost > std::min(job.allowance, own_probe * job.could_save)) return false;
  begin_probe(now);
  job.waits_for_window = true;
  job.measuring_since = now;
  return true;
}

/// With an unknown speed of the device: the job waits for a measurement if its allowance suffices, else it is refused.
void planner::allow_measuring(prefetch_job& job, time_point now) {
  const bool may_wait = job.allowance >= worth_a_try * job.could_save && time_of(job.allowance) >= shortest_look;
  if (!job.has_loads && !may_wait) refuse_or_cut(job, job.prefix, now);
}

void planner::refuse_or_cut(prefetch_job& job, std::size_t end, time_point now) {
  if (end == job.prefix && !job.has_loads) probe_behind(job, now);
  truncate_at(job, end, job.has_loads ? reason::cut : reason::cannot_win);
}

/// The job is answered without loads. A probe loads a window of its blocks for no client, to measure the device again.
void planner::probe_behind(const prefetch_job& job, time_point now) {
  const bool one_is_open = std::ranges::any_of(jobs_, [](const auto& each) { return each.second.measures_only; });
  if (one_is_open || !probes_.is_due(speed_, now)) return;
  std::vector<full_key> keys;
  const std::size_t most = probe_window(job.stride) / job.stride;
  for (std::size_t i = job.prefix; i < job.end && keys.size() < most; ++i) {
    if (job.places[i] == place::lower_tier) keys.push_back((*job.keys)[i]);
  }
  if (keys.empty()) return;
  begin_probe(now);
  prefetch_job made;
  made.number = next_job_++;
  made.measures_only = true;
  made.instance = job.instance;
  made.group = job.group;
  made.stride = job.stride;
  made.end = made.loads_left = keys.size();
  made.places.assign(keys.size(), place::lower_tier);
  made.keys = std::make_shared<const std::vector<full_key>>(std::move(keys));
  made.deadline = now + probe_limit;
  jobs_.emplace(made.number, std::move(made));
}

/// The end of the prefix that saves most time: recomputation saved, less the time until it has arrived; job.prefix if
/// none saves any. Ends before the first block whose arrival exceeds the allowance.
std::size_t planner::best_end(const prefetch_job& job, std::uint64_t ahead, const forecast& speed,
                              time_point now) const {
  const auto older = jobs_.find(job.shared_with);
  const std::size_t shared = older == jobs_.end() ? 0 : std::min(job.in_common, older->second.end);
  const std::uint64_t in_older = older == jobs_.end() ? 0 : std::min(ahead, older->second.loads_left * job.stride);
  const double waited = seconds_of(now - job.since);
  std::uint64_t before = 0;    // bytes that arrive up to and with block i
  std::uint64_t own = 0;       // … of them, those that this job loads
  std::uint64_t by_older = 0;  // … those that the older job loads
  double best = 0;
  std::size_t best_at = job.prefix;
  for (std::size_t i = job.prefix; i < job.end; ++i) {
    if (job.places[i] == place::loading) {
      const auto known = job.arrivals.find(i);
      before = std::max(before, known == job.arrivals.end() ? speed_.under_way() : known->second);
    } else if (job.places[i] == place::lower_tier) {
      (i < shared ? by_older : own) += job.stride;
      before = std::max(before, speed_.under_way() + (i < shared ? ahead - in_older + by_older : ahead + own));
    }
    const double until = before > 0 ? speed.until(before) : 0;
    if (waited + until - static_cast<double>(i - job.first_prefix) * job.recompute > job.allowance) break;
    const double profit = static_cast<double>(i + 1 - job.prefix) * job.recompute - until;
    if (profit <= best) continue;
    best = profit;
    best_at = i + 1;
  }
  return best_at;
}

bool planner::is_over(prefetch_job& job, time_point now) noexcept {
  if (job.prefix >= job.end) return true;
  if (job.stop_reason) {
    job.end_reason = *job.stop_reason;
  } else if (job.deadline <= now) {
    job.end_reason = reason::timeout;
  } else {
    return false;
  }
  job.end = job.prefix;
  job.loads_left = 0;
  return true;
}

void planner::issue_finish(prefetch_job& job) {
  job.finishing = true;
  commands_.push_back({.what = command::kind::finish,
                       .job = job.number,
                       .session = job.session,
                       .instance = job.instance,
                       .group = job.group,
                       .hold = job.hold,
                       .keys = job.keys});
}

void planner::plan(time_point now) {
  expire(now);
  note_arrivals();
  std::uint64_t ahead = 0;
  for (auto& [number, each] : jobs_) {
    if (each.finishing) continue;
    skip_resident(each);
    if (each.recompute > 0) compare_with_recompute(each, ahead, now);
    if (is_over(each, now)) {
      issue_finish(each);
    } else {
      ahead += each.loads_left * each.stride;
    }
  }
  if (blocked_ && blocked_until_ <= now) blocked_ = false;
  if (open_command_ || blocked_) return;
  for (auto& [number, each] : jobs_) {
    if (each.finishing || each.next >= each.end) continue;
    if (issue_loads(each, now) != issued::over_budget) return;  // the oldest first, always
  }
}

/// Issues a load command for the next keys of the chain, as far as window and budgets allow.
planner::issued planner::issue_loads(prefetch_job& job, time_point now) {
  const std::uint64_t room = room_for(job, now);
  const std::uint64_t budget = budget_for(job);
  std::uint64_t bytes = 0;
  std::size_t key = job.next;
  issued stopped = issued::yes;
  for (; key < job.end && key - job.next < command_keys; ++key) {
    if (job.places[key] != place::lower_tier) continue;
    const bool first_of_all = bytes == 0 && speed_.under_way() == 0;  // one may always come, however small the window
    if (bytes + job.stride > room && !first_of_all) {
      stopped = issued::no_room;
      break;
    }
    if (bytes + job.stride > budget) {
      stopped = issued::over_budget;
      break;
    }
    bytes += job.stride;
  }
  if (key == job.next) {
    if (stopped == issued::over_budget && alone_in_budget(job)) truncate_at(job, key, reason::budget);
    return stopped;
  }
  open_command_ = command{.what = command::kind::load,
                          .job = job.number,
                          .session = job.session,
                          .instance = job.instance,
                          .group = job.group,
                          .hold = job.hold,
                          .keys = job.keys,
                          .first = job.next,
                          .count = key - job.next};
  open_stride_ = job.stride;
  commands_.push_back(*open_command_);
  return issued::yes;
}

/// Bytes that may be put in flight now. A chain that is compared with recomputing keeps the queue short, since it may
/// be cut; while the device's speed is not known well, no more than a window that measures it.
std::uint64_t planner::room_for(const prefetch_job& job, time_point now) const {
  std::uint64_t most = options_.window;
  if (job.session == 0 && !job.measures_only) most = std::min(most, speculative_blocks * job.stride);
  if (job.measures_only || (job.recompute > 0 && (is_measuring(job) || !speed_.is_proven(now)))) {
    most = std::min(most, probe_window(job.stride));
  } else if (job.recompute > 0) {
    const auto ahead = static_cast<std::uint64_t>(speed_.last() * (in_flight_seconds + 2 * speed_.latency()));
    most = std::min(most, std::max(least_in_flight * job.stride, ahead));
  }
  return most - std::min(most, speed_.under_way());
}

/// Bytes of a window of loads that measures the device.
std::uint64_t planner::probe_window(std::uint64_t stride) const noexcept {
  if (speed_.last() == 0) return probe_blocks * stride;
  const auto by_time = static_cast<std::uint64_t>(speed_.last() * probe_seconds);
  return std::clamp(by_time, probe_blocks_least * stride, probe_blocks * stride);
}

std::uint64_t planner::budget_for(const prefetch_job& job) const {
  const auto left = [](std::uint64_t limit, std::uint64_t used) {
    return limit == 0 ? ~std::uint64_t{0} : limit - std::min(limit, used);
  };
  const auto charged = charged_.find(job.instance);
  return std::min(left(options_.total_bytes, charged_in_all_),
                  left(options_.instance_bytes, charged == charged_.end() ? 0 : charged->second));
}

/// True when the job alone exceeds a budget: waiting for other jobs to give back their shares would not help.
bool planner::alone_in_budget(const prefetch_job& job) const {
  const auto lacks = [&](std::uint64_t limit, std::uint64_t used_by_it) {
    return limit != 0 && used_by_it + job.stride > limit;
  };
  return lacks(options_.total_bytes, job.charged) || lacks(options_.instance_bytes, job.charged);
}

void planner::expire(time_point now) {
  std::vector<std::uint64_t> late;
  for (const auto& [number, each] : held_) {
    if (each.until <= now) late.push_back(number);
  }
  counts_.unclaimed += late.size();
  for (const std::uint64_t number : late) release_hold(number);
}

std::optional<time_point> planner::wake_at(time_point now) const noexcept {
  std::optional<time_point> next;
  const auto sooner = [&](time_point when) { next = next ? std::min(*next, when) : when; };
  for (const auto& [number, each] : jobs_) {
    if (each.finishing) continue;
    sooner(each.deadline);
    if (each.prefix >= each.end) sooner(now);
    if (each.recompute <= 0) continue;
    if (each.could_save > 0) sooner(std::max(now, latest_wait_of(each)));
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
