#include "tiers/prefetch/planner.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <limits>
#include <utility>

namespace cenote::prefetch {

namespace {

using memory::prefetch_policy;

constexpr std::size_t command_keys =
    256;  // most keys of a load command: some tens of microseconds of the tier's thread
constexpr auto retry_after = std::chrono::milliseconds(100);
constexpr auto busy_pause = std::chrono::milliseconds(1);  // another node may be storing the very block here
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
  if (incoming.what == request::kind::locate) {
    return lookups_.begin(next_job_++, std::move(incoming), options_.limit, now);
  }
  if (incoming.what == request::kind::start || incoming.what == request::kind::follow)
    holders_.insert_or_assign(incoming.session, incoming.holder);
  if (incoming.what == request::kind::follow) return begin_follow(std::move(incoming), now);
  if (incoming.what == request::kind::more) return on_question(incoming);
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
  fail_question(incoming.session, incoming.number, code);
}

void planner::fail_question(std::uint64_t session, std::uint32_t request, error_code code) {
  answer made{.session = session, .completion = {}};
  made.completion.request = request;
  made.completion.kind = memory::completion_kind::done;
  made.completion.code = static_cast<std::uint16_t>(code);
  answers_.push_back(made);
}

std::size_t planner::open_prefetches_of(std::uint64_t session) const noexcept {
  const auto is_own = [&](const auto& each) { return each.second.session == session; };
  return static_cast<std::size_t>(std::ranges::count_if(jobs_, is_own) + std::ranges::count_if(held_, is_own));
}

/// Adds `count` keys of session `other` to the usage that `session` is compared with.
void planner::add_keys(key_usage& usage, std::uint64_t session, std::uint64_t other, std::size_t count) const {
  usage.taken.all += count;
  const auto own = holders_.find(session);
  const auto payer = holders_.find(other);
  if (own == holders_.end() || payer == holders_.end()) return;
  usage.session += other == session ? count : 0;
  usage.taken.user += payer->second.uid == own->second.uid ? count : 0;
  usage.taken.group += payer->second == own->second ? count : 0;
}

planner::key_usage planner::keys_of(std::uint64_t session) const {
  key_usage usage;
  for (const auto& [number, each] : jobs_) add_keys(usage, session, each.session, each.keys->size());
  for (const auto& [number, each] : held_) add_keys(usage, session, each.session, each.keys ? each.keys->size() : 0);
  return usage;
}

/// Bounds the memory of keys, which live until their prefetch is answered: a session's, and all.
bool planner::fits_limits(const key_usage& usage, std::uint64_t session, std::size_t more) const {
  if (usage.session + more > max_session_keys) return false;
  return !share_refusal(node_bound::prefetch_keys, max_keys, usage.taken, holders_.at(session), more);
}

bool planner::fits_key_limits(const request& incoming) const {
  key_usage usage = keys_of(incoming.session);
  for (const auto& [session, each] : gathering_) {
    if (session != incoming.session) add_keys(usage, incoming.session, session, each.keys.size());
  }
  return fits_limits(usage, incoming.session, incoming.keys.size());
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
    open_account(made);
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

  const std::uint64_t threshold = incoming.terms.threshold_tokens.value_or(options_.threshold_tokens);
  find_end(made, incoming.asks, incoming.tokens_per_block, threshold);
  made.since = now;
  made.first_prefix = made.prefix;
  const std::uint64_t tokens = ((made.asks ? made.asks->reach() : made.end) - made.prefix) * incoming.tokens_per_block;

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

/// Where the chain ends, as far as that is known, and whether tiers without hints are asked how it goes on.
void planner::find_end(prefetch_job& job, std::bitset<max_edges> asks, std::uint64_t tokens_per_block,
                       std::uint64_t threshold) {
  job.end = job.places.size();
  job.named.resize(job.places.size());
  skip_resident(job);
  const auto absent = std::ranges::find(job.places, place::absent, &spot::what);
  if (absent != job.places.end()) {
    truncate_at(job, static_cast<std::size_t>(absent - job.places.begin()), reason::absent);
  }
  inquiry about(job.places, job.end, asks);
  if (about.first() < job.end) {
    truncate_at(job, about.first(), reason::absent);
    const std::uint64_t behind = (about.reach() - about.first()) * tokens_per_block;
    if (asks.any() && behind >= threshold) job.asks = std::move(about);
  }
  job.least_blocks = tokens_per_block == 0 ? 0 : (threshold + tokens_per_block - 1) / tokens_per_block;
  const std::size_t reach = job.asks ? job.asks->reach() : job.end;
  if (reach > job.prefix && reach - job.prefix < job.least_blocks) {
    truncate_at(job, job.prefix, reason::below_threshold);
  }
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
  made.named.resize(next->size());
  made.places.assign(next->size(), {place::near, 0});  // the tier says what is true when it is asked
  made.loads_left[0] = made.end;
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
  holders_.erase(session);
  continuations_.forget(session);
  lookups_.on_session_closed(session);
  for (const auto& [number, each] : jobs_) {
    if (each.session != session) continue;
    ++counts_.finished;
    ++counts_.by_reason[static_cast<std::size_t>(reason::session_gone)];
    return_allowance(each, 0);
    refund(each.instance, each.charged);
    end_order(each);
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
  if (result.edge >= max_edges || !sources_[result.edge].open) return;
  source& from = sources_[result.edge];
  const command named = *std::exchange(from.open, std::nullopt);
  prefetch_job* const job = find(result.job);  // null: its session is gone
  const std::size_t count = std::min(result.loads.size(), named.which.size());
  std::size_t done = 0;
  for (; done < count; ++done) {
    const load_answer& each = result.loads[done];
    const std::size_t key = named.which[done];
    if (each.state == load_state::loading) track_load(each, named, from.open_stride, key, now);
    if (each.state == load_state::wait) {
      from.blocked = true;
      from.blocked_until = now + retry_after;
    }
    if (job == nullptr) continue;
    switch (each.state) {
      case load_state::present: job->places[key].what = place::present; break;
      case load_state::loading: job->places[key] = {place::loading, static_cast<std::uint8_t>(each.edge)}; break;
      case load_state::wait: break;
      case load_state::busy:
        if (!job->follow)
          lose(*job, key, reason::absent);
        else
          job->follow->again_at = now + busy_pause;
        break;
      case load_state::absent: lose(*job, key, reason::absent); break;
      case load_state::no_space: lose(*job, key, reason::no_space); break;
    }
    if (each.state != load_state::present && each.state != load_state::loading) break;
    job->named[key] = true;
  }
  if (job == nullptr) return;
  for (const std::uint32_t key : std::span(named.which).subspan(done)) {  // they are named once more
    job->next[result.edge] = std::min<std::size_t>(job->next[result.edge], key);
    job->kept = std::min<std::size_t>(job->kept, key);
  }
  truncate_at(*job, job->end, job->end_reason);
}

/// The chain ends before the key, which cannot be had.
void planner::lose(prefetch_job& job, std::size_t key, reason why) noexcept {
  job.places[key].what = place::absent;
  truncate_at(job, key, why);
}

/// Notes that a load of the key is in flight. Its bytes are charged to the job that began it alone.
void planner::track_load(const load_answer& load, const command& by, std::uint64_t stride, std::size_t key,
                         time_point now) {
  const auto [found, is_new] = loads_in_flight_.try_emplace(load.token);
  load_in_flight& under_way = found->second;
  prefetch_job* const job = find(by.job);
  if (is_new) {
    under_way.bytes = stride;
    under_way.edge = std::min(load.edge, max_edges - 1);
    sources_[under_way.edge].speed.started(stride, now);
    if (job != nullptr) {
      job->charged += stride;
      charged_[job->instance] += stride;
      charged_in_all_ += stride;
    }
  }
  if (job == nullptr) return;
  const edge_number edge = under_way.edge;
  source& from = sources_[edge];
  if (!job->has_loads[edge] && !job->waits_for_window[edge] && job->recompute > 0 && !from.speed.is_proven(now)) {
    job->waits_for_window.set(edge);
    job->measuring_since[edge] = now;
    ++counts_.probes;
    from.probes.begun(now);
  }
  job->has_loads.set(edge);
  under_way.wanted_by.emplace_back(by.job, key);
  share_load(under_way, by.job, key);
}

void planner::on_told(std::uint64_t number, edge_number edge, const std::vector<bool>& held) {
  lookups_.on_told(number, edge, held);
  prefetch_job* const job = find(number);
  if (job == nullptr || job->finishing || !job->asks) return;
  job->asks->take(edge, held, job->places);
  if (!job->asks->is_answered()) return;
  ++counts_.answered;
  close_question(*job);
}

void planner::on_loads_finished(std::span<const transfer_outcome> ended, time_point now) {
  struct sum {
    std::uint64_t bytes = 0, good = 0, loads = 0;
  };
  by_edge<sum> sums{};
  for (const transfer_outcome& each : ended) {
    const auto found = loads_in_flight_.find(each.token);
    if (found == loads_in_flight_.end()) continue;
    const bool came = each.what == transfer_result::done;
    sum& of = sums[found->second.edge];
    ++of.loads;
    of.bytes += found->second.bytes;
    of.good += came ? found->second.bytes : 0;
    ++(came ? counts_.loaded : counts_.lost);
    sources_[found->second.edge].counts.loaded += came ? 1 : 0;
    const bool speculative = std::ranges::all_of(found->second.wanted_by, [&](const auto& wanted) {
      const prefetch_job* const job = find(wanted.first);
      return job != nullptr && job->session == 0 && !job->measures_only;
    });
    counts_.read_ahead += came && speculative && !found->second.wanted_by.empty() ? 1 : 0;
    for (const auto& [number, key] : found->second.wanted_by) {
      prefetch_job* const job = find(number);
      if (job == nullptr) continue;
      if (!came) {
        lose(*job, key, reason::absent);
        continue;
      }
      if (job->places[key].what != place::present) ++job->loaded[found->second.edge];  // a load may name it twice
      job->places[key].what = place::present;
      if (!job->named[key]) job->kept = std::min(job->kept, key);
    }
    loads_in_flight_.erase(found);
  }
  for (edge_number edge = 0; edge < max_edges; ++edge) {
    if (sums[edge].bytes == 0) continue;
    source& from = sources_[edge];
    from.speed.ended(sums[edge].bytes, sums[edge].good, now, sums[edge].loads);
    from.probes.observe(from.speed, now);
  }
}

/// Adds every younger job whose common prefix with this job holds the key to those that wait for the load.
void planner::share_load(load_in_flight& under_way, std::uint64_t number, std::size_t key) {
  const prefetch_job* const first = find(number);
  for (auto& [other, each] : jobs_) {
    if (each.shared_with != number || key >= each.in_common) continue;
    spot& at = each.places[key];
    if (!at.is_below() && at.what != place::unasked) continue;
    if (at.is_below() && key >= each.next[at.edge] && key < each.end) --each.loads_left[at.edge];
    const edge_number edge = under_way.edge;
    at = {place::loading, static_cast<std::uint8_t>(edge)};
    each.has_loads.set(edge);
    each.waits_for_window[edge] = first->waits_for_window[edge];
    each.measuring_since[edge] = first->measuring_since[edge];
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
    if (job.places[key].what != place::loading) continue;
    job.places[key].edge = static_cast<std::uint8_t>(each.edge);
    job.has_loads.set(each.edge);
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
  if (done.follow) return end_follow(found, result.length, now);
  read_ahead(done, now);
  if (done.recompute > 0) close_account(done, result.length, now);
  ++counts_.finished;
  ++counts_.by_reason[static_cast<std::size_t>(done.end_reason)];
  source_status& slow = sources_[done.cut_by].counts;
  slow.cannot_win += done.end_reason == reason::cannot_win ? 1 : 0;
  slow.cut += done.end_reason == reason::cut ? 1 : 0;
  answer made{.session = done.session, .completion = {}};
  made.completion.request = done.request;
  made.completion.kind = memory::completion_kind::done;
  made.completion.value = result.length;
  outcome_of(done, now).pack(made.completion);
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

memory::prefetch_outcome planner::outcome_of(const prefetch_job& job, time_point now) noexcept {
  static_assert(memory::prefetch_outcome::edges == max_edges);
  constexpr std::uint32_t most = std::numeric_limits<std::uint16_t>::max();
  memory::prefetch_outcome made;
  made.reason = static_cast<std::uint8_t>(std::to_underlying(job.end_reason) + 1);
  made.resident = static_cast<std::uint32_t>(job.first_prefix);
  for (std::size_t edge = 0; edge < max_edges; ++edge)
    made.loaded[edge] = static_cast<std::uint16_t>(std::min(job.loaded[edge], most));
  made.duration = std::chrono::duration_cast<std::chrono::microseconds>(now - job.since);
  return made;
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
  while (job.prefix < job.places.size() && job.places[job.prefix].what == place::present) ++job.prefix;
}

/// Shortens what is wanted of the chain to the keys before `key`, for the reason `why`; never lengthens it. What was
/// asked for behind is not wanted, either.
void planner::truncate_at(prefetch_job& job, std::size_t key, reason why) noexcept {
  if (job.finishing) return;
  if (key < job.end) {
    job.end = key;
    job.end_reason = why;
    job.asks.reset();
  }
  job.loads_left = {};
  for (std::size_t i = std::min(*std::ranges::min_element(job.next), job.end); i < job.end; ++i) {
    const spot at = job.places[i];
    if (at.is_below() && i >= job.next[at.edge]) ++job.loads_left[at.edge];
  }
}

void planner::send_question(prefetch_job& job, time_point now) {
  auto sent = job.asks->send(job.number, job.instance, job.group, *job.keys, now, options_.lookup_timeout);
  std::ranges::move(sent, std::back_inserter(questions_));
  ++counts_.questions;
}

/// The chain goes on as far as was answered.
void planner::close_question(prefetch_job& job) {
  const inquiry asked = *std::exchange(job.asks, std::nullopt);
  job.end = asked.close(job.places);
  job.end_reason = job.end == job.places.size() ? reason::complete : reason::absent;
  job.holds_back = false;
  const auto first = job.places.begin() + static_cast<std::ptrdiff_t>(asked.first());
  counts_.found += static_cast<std::uint64_t>(std::count_if(
      first, job.places.begin() + static_cast<std::ptrdiff_t>(job.end), [](spot at) { return at.what == place::far; }));
  job.kept = std::min(job.kept, asked.first());
  truncate_at(job, job.end, job.end_reason);
  const std::size_t left = job.end - std::min(job.prefix, job.end);
  if (left > 0 && left < job.least_blocks && job.has_loads.none()) {
    truncate_at(job, job.prefix, reason::below_threshold);
  }
}

void planner::close_overdue_questions(time_point now) {
  for (auto& [number, each] : jobs_) {
    if (each.asks && each.asks->is_sent() && each.asks->until() <= now) close_question(each);
  }
}

void planner::note_arrivals() {
  bool compared = false;
  for (auto& [number, each] : jobs_) {
    each.arrivals.clear();
    compared |= each.recompute > 0;
  }
  if (!compared) return;
  by_edge<std::uint64_t> sums{};
  for (const auto& [token, each] : loads_in_flight_) {
    const std::uint64_t bytes = sums[each.edge] += each.bytes;
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

void planner::open_account(prefetch_job& job) {
  const std::size_t reach = job.asks ? job.asks->reach() : job.end;
  if (job.prefix >= reach) return;
  job.could_save = static_cast<double>(reach - job.first_prefix) * job.recompute;
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
/// While a question is open nothing is cut, for what it finds may pay for all: only the time that may be lost ends it.
void planner::compare_with_recompute(prefetch_job& job, const by_edge<std::uint64_t>& ahead, time_point now) {
  job.holds_back = false;
  if (job.prefix >= job.end && !job.asks) return;
  if (now >= latest_wait_of(job)) {
    job.asks.reset();
    return refuse_or_cut(job, job.prefix, now);
  }
  forecasts speeds;
  for (edge_number edge = 0; edge < max_edges; ++edge) speeds[edge] = sources_[edge].speed.estimate(now);
  const auto is_unknown = [&](spot at) { return at.what != place::present && !speeds[at.edge]; };
  const auto first = job.places.begin() + static_cast<std::ptrdiff_t>(std::min(job.prefix, job.end));
  const auto last = job.places.begin() + static_cast<std::ptrdiff_t>(job.end);
  const auto unknown = std::find_if(first, last, is_unknown);
  const bool is_waited_for = unknown == last || job.has_loads[unknown->edge] || may_measure(job);
  const auto limit = static_cast<std::size_t>((is_waited_for ? last : unknown) - job.places.begin());
  const std::size_t end = best_end(job, limit, ahead, speeds, now);
  if (job.asks) {
    job.holds_back = end < job.end;
    return;
  }
  if (end >= job.end) return;
  const edge_number edge = edge_behind(job, end);
  if (is_measuring(job, edge)) return;
  if (end == job.prefix && speeds[edge] && becomes_probe(job, edge, *speeds[edge], now)) return;
  refuse_or_cut(job, end, now);
}

/// The source of the first key from `key` on that is not here.
edge_number planner::edge_behind(const prefetch_job& job, std::size_t key) noexcept {
  while (key < job.end && job.places[key].what == place::present) ++key;
  return key < job.end ? job.places[key].edge : 0;
}

/// True while its first loads measure the source, and not all of them have arrived.
bool planner::is_measuring(const prefetch_job& job, edge_number edge) const noexcept {
  const throughput& speed = sources_[edge].speed;
  if (!job.waits_for_window[edge] || speed.is_measured_since(job.measuring_since[edge])) return false;
  return !job.has_loads[edge] || speed.under_way() > 0;
}

void planner::begin_probe(source& from, time_point now) {
  from.speed.renew(now);
  from.probes.begun(now);
  ++counts_.probes;
}

/// Lets the job measure the source if that is due, and if waiting for the window costs little at the last known speed.
bool planner::becomes_probe(prefetch_job& job, edge_number edge, const forecast& speed, time_point now) {
  source& from = sources_[edge];
  if (job.has_loads[edge] || job.waits_for_window[edge] || !from.probes.is_due(from.speed, now)) return false;
  const double lost = speed.until(probe_blocks_least * job.stride) - probe_blocks_least * job.recompute;
  if (lost > std::min(job.allowance, own_probe * job.could_save)) return false;
  begin_probe(from, now);
  job.waits_for_window.set(edge);
  job.measuring_since[edge] = now;
  return true;
}

/// Whether the job may wait for a measurement of a source whose speed is unknown; else nothing is loaded from there.
bool planner::may_measure(const prefetch_job& job) noexcept {
  return job.allowance >= worth_a_try * job.could_save && time_of(job.allowance) >= shortest_look;
}

void planner::refuse_or_cut(prefetch_job& job, std::size_t end, time_point now) {
  if (end >= job.end) return;
  const edge_number edge = edge_behind(job, end);
  const auto wanted = std::span(job.places).subspan(job.prefix, end - job.prefix);
  const bool loads_from_it =
      std::ranges::any_of(wanted, [&](spot at) { return at.what != place::present && at.edge == edge; });
  if (!job.has_loads[edge] && !loads_from_it) probe_behind(job, edge, end, now);
  job.cut_by = edge;
  truncate_at(job, end, job.has_loads.any() ? reason::cut : reason::cannot_win);
}

/// The job is answered without loads from this source. A probe loads a window of its blocks for no client, to measure
/// the source again.
void planner::probe_behind(const prefetch_job& job, edge_number edge, std::size_t first, time_point now) {
  const bool one_is_open =
      std::ranges::any_of(jobs_, [&](const auto& each) { return each.second.measures_only == edge; });
  source& from = sources_[edge];
  if (one_is_open || !from.probes.is_due(from.speed, now)) return;
  std::vector<full_key> keys;
  const std::size_t most = probe_window(job.stride, from) / job.stride;
  place where = place::near;
  for (std::size_t i = first; i < job.end && keys.size() < most; ++i) {
    if (!job.places[i].is_below() || job.places[i].edge != edge) continue;
    where = job.places[i].what;
    keys.push_back((*job.keys)[i]);
  }
  if (keys.empty()) return;
  begin_probe(from, now);
  prefetch_job made;
  made.number = next_job_++;
  made.measures_only = edge;
  made.instance = job.instance;
  made.group = job.group;
  made.stride = job.stride;
  made.end = made.loads_left[edge] = keys.size();
  made.named.resize(keys.size());
  made.places.assign(keys.size(), {where, static_cast<std::uint8_t>(edge)});
  made.keys = std::make_shared<const std::vector<full_key>>(std::move(keys));
  made.deadline = now + probe_limit;
  jobs_.emplace(made.number, std::move(made));
}

/// The end of the prefix, at most `limit`, that saves most time: recomputation saved, less the time until it has
/// arrived; job.prefix if none saves any. Ends before the first block whose arrival exceeds the allowance. Sources load
/// side by side, so a prefix is there when the slowest has brought its part; one that was never measured costs nothing.
std::size_t planner::best_end(const prefetch_job& job, std::size_t limit, const by_edge<std::uint64_t>& ahead,
                              const forecasts& speeds, time_point now) const {
  struct queue {
    std::uint64_t in_older = 0;  // bytes that the older job will load, of those ahead
    std::uint64_t before = 0;    // bytes that arrive up to and with block i
    std::uint64_t own = 0;       // … of them, those that this job loads
    std::uint64_t by_older = 0;  // … those that the older job loads
  };
  const auto older = jobs_.find(job.shared_with);
  const std::size_t shared = older == jobs_.end() ? 0 : std::min(job.in_common, older->second.end);
  by_edge<queue> queues{};
  for (edge_number edge = 0; edge < max_edges && older != jobs_.end(); ++edge) {
    queues[edge].in_older = std::min(ahead[edge], older->second.loads_left[edge] * job.stride);
  }
  const double waited = seconds_of(now - job.since);
  double until = 0;
  double best = 0;
  std::size_t best_at = job.prefix;
  for (std::size_t i = job.prefix; i < limit; ++i) {
    const spot at = job.places[i];
    queue& from = queues[at.edge];
    const std::uint64_t under_way = sources_[at.edge].speed.under_way();
    if (at.what == place::loading) {
      const auto known = job.arrivals.find(i);
      from.before = std::max(from.before, known == job.arrivals.end() ? under_way : known->second);
    } else if (at.is_below()) {
      (i < shared ? from.by_older : from.own) += job.stride;
      from.before = std::max(from.before, under_way + (i < shared ? ahead[at.edge] - from.in_older + from.by_older
                                                                  : ahead[at.edge] + from.own));
    }
    if (from.before > 0 && speeds[at.edge]) until = std::max(until, speeds[at.edge]->until(from.before));
    if (waited + until - static_cast<double>(i - job.first_prefix) * job.recompute > job.allowance) break;
    const double profit = static_cast<double>(i + 1 - job.prefix) * job.recompute - until;
    if (profit <= best) continue;
    best = profit;
    best_at = i + 1;
  }
  return best_at;
}

bool planner::is_over(prefetch_job& job, time_point now) noexcept {
  if (job.prefix >= job.end && !job.asks && !waits_for_more(job)) return true;
  if (job.stop_reason) {
    job.end_reason = *job.stop_reason;
  } else if (job.deadline <= now) {
    job.end_reason = reason::timeout;
  } else {
    return false;
  }
  job.end = std::min(job.end, job.prefix);
  job.loads_left = {};
  job.asks.reset();
  return true;
}

void planner::issue_finish(prefetch_job& job) {
  job.finishing = true;
  end_order(job);
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
  lookups_.expire(now);
  close_overdue_questions(now);
  note_arrivals();
  by_edge<std::uint64_t> ahead{};
  for (auto& [number, each] : jobs_) {
    if (each.finishing) continue;
    skip_resident(each);
    if (each.recompute > 0) compare_with_recompute(each, ahead, now);
    if (is_over(each, now)) {
      issue_finish(each);
      continue;
    }
    if (each.asks && !each.asks->is_sent()) send_question(each, now);
    for (edge_number edge = 0; edge < max_edges; ++edge) ahead[edge] += each.loads_left[edge] * each.stride;
  }
  for (edge_number edge = 0; edge < max_edges; ++edge) issue_loads_from(edge, now);
  answer_questions();
}

std::vector<question> planner::take_questions() {
  std::vector<question> all = std::exchange(questions_, {});
  std::ranges::move(lookups_.take_questions(), std::back_inserter(all));
  return all;
}

std::vector<answer> planner::take_answers() {
  std::vector<answer> all = std::exchange(answers_, {});
  std::ranges::move(lookups_.take_answers(), std::back_inserter(all));
  return all;
}

void planner::issue_loads_from(edge_number edge, time_point now) {
  source& from = sources_[edge];
  if (from.blocked && from.blocked_until <= now) from.blocked = false;
  if (from.open || from.blocked) return;
  for (prefetch_job* const each : loading_order(from, now)) {
    const issued outcome = issue_loads(*each, edge, now);
    if (outcome == issued::yes) from.turns.note(holder_of(*each), each->instance);
    if (outcome == issued::yes || outcome == issued::no_room) return;
  }
}

/// The jobs in the order in which they may load: the oldest first of each instance, and the instances in turns of a
/// command, so that the many chains of one do not keep another one waiting, nor the many instances of one user.
std::vector<planner::prefetch_job*> planner::loading_order(const source& tier, time_point now) {
  std::vector<prefetch_job*> all;
  for (auto& [number, each] : jobs_) {
    if (!each.finishing && (!each.follow || now >= each.follow->again_at)) all.push_back(&each);
  }
  const bool is_shared = std::ranges::any_of(all, [&](const auto* job) { return job->instance != all[0]->instance; });
  if (!is_shared) return all;
  std::map<std::uint32_t, load_turns::turn> last_turns;  // of each instance: the latest of those that pay for its jobs
  for (const prefetch_job* const each : all) {
    load_turns::turn& turn = last_turns[each->instance];
    if (each->session != 0) turn = std::max(turn, tier.turns.last(holder_of(*each), each->instance));
  }
  std::ranges::stable_sort(all, {}, [&](const prefetch_job* job) { return last_turns.at(job->instance); });
  return all;
}

/// Speculation and measurements have no session: no user pays for them.
share_holder planner::holder_of(const prefetch_job& job) const {
  const auto found = holders_.find(job.session);
  return found == holders_.end() ? share_holder{.uid = share_holder::other_node} : found->second;
}

/// Keys of the chain that are here are named in a load command before any that are not, so that they are held before
/// loads make room for themselves.
void planner::name_present(prefetch_job& job, std::vector<std::uint32_t>& which) {
  const std::size_t reach = job.asks ? job.asks->reach() : job.end;
  for (; job.kept < reach && which.size() < command_keys; ++job.kept) {
    if (job.places[job.kept].what != place::present || job.named[job.kept]) continue;
    which.push_back(static_cast<std::uint32_t>(job.kept));
  }
}

/// Issues a load command for the next keys of the chain that come from there, as far as window and budgets allow.
planner::issued planner::issue_loads(prefetch_job& job, edge_number edge, time_point now) {
  source& from = sources_[edge];
  std::vector<std::uint32_t> which;
  name_present(job, which);
  const std::uint64_t room = room_for(job, edge, now);
  const std::uint64_t budget = budget_for(job);
  const std::size_t most = which.size() + command_keys;
  std::uint64_t bytes = 0;
  issued stopped = issued::nothing;
  std::size_t& key = job.next[edge];
  for (; key < job.end && !job.holds_back && which.size() < most; ++key) {
    const spot at = job.places[key];
    if (at.what == place::present || at.edge != edge || job.named[key]) continue;
    if (at.is_below()) {
      const bool first_of_all =
          bytes == 0 && from.speed.under_way() == 0;  // one may always come, however small the window
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
    which.push_back(static_cast<std::uint32_t>(key));
  }
  if (which.empty()) {
    if (stopped == issued::over_budget && alone_in_budget(job)) truncate_at(job, key, reason::budget);
    return stopped;
  }
  from.open = command{.what = command::kind::load,
                      .job = job.number,
                      .session = job.session,
                      .instance = job.instance,
                      .group = job.group,
                      .hold = job.hold,
                      .keys = job.keys,
                      .edge = edge,
                      .from = job.follow ? job.follow->from : 0,
                      .which = std::move(which)};
  from.open_stride = job.stride;
  commands_.push_back(*from.open);
  return issued::yes;
}

/// Bytes that may be put in flight now. A chain that is compared with recomputing keeps the queue short, since it may
/// be cut; while the device's speed is not known well, no more than a window that measures it.
std::uint64_t planner::room_for(const prefetch_job& job, edge_number edge, time_point now) const {
  const source& from = sources_[edge];
  std::uint64_t most = edge < options_.windows.size() ? options_.windows[edge] : options_.window;
  if (job.session == 0 && !job.measures_only) most = std::min(most, speculative_blocks * job.stride);
  if (job.measures_only || (job.recompute > 0 && (is_measuring(job, edge) || !from.speed.is_proven(now)))) {
    most = std::min(most, probe_window(job.stride, from));
  } else if (job.recompute > 0) {
    const auto ahead = static_cast<std::uint64_t>(from.speed.last() * (in_flight_seconds + 2 * from.speed.latency()));
    most = std::min(most, std::max(least_in_flight * job.stride, ahead));
  }
  return most - std::min(most, from.speed.under_way());
}

/// Bytes of a window of loads that measures the source.
std::uint64_t planner::probe_window(std::uint64_t stride, const source& from) const noexcept {
  if (from.speed.last() == 0) return probe_blocks * stride;
  const auto by_time = static_cast<std::uint64_t>(from.speed.last() * probe_seconds);
  return std::clamp(by_time, probe_blocks_least * stride, probe_blocks * stride);
}

bool planner::any_under_way() const noexcept {
  return std::ranges::any_of(sources_, [](const source& each) { return each.speed.under_way() > 0; });
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
  const bool loads = any_under_way();
  const auto sooner = [&](time_point when) { next = next ? std::min(*next, when) : when; };
  for (const auto& [number, each] : jobs_) {
    if (each.finishing) continue;
    sooner(each.deadline);
    if (each.prefix >= each.end && !each.asks && !waits_for_more(each)) sooner(now);
    if (each.asks) sooner(each.asks->is_sent() ? each.asks->until() : now);
    if (each.follow && each.follow->again_at > now) sooner(each.follow->again_at);
    if (each.recompute <= 0) continue;
    if (each.could_save > 0) sooner(std::max(now, latest_wait_of(each)));
    if (loads) sooner(now + std::clamp(time_of(each.recompute / 4), shortest_look, longest_look));
  }
  for (const auto& [number, each] : held_) sooner(each.until);
  if (const auto when = lookups_.wake_at()) sooner(*when);
  for (const source& each : sources_) {
    if (each.blocked) sooner(each.blocked_until);
  }
  return next;
}

prefetch::status planner::status(time_point now) const {
  prefetch::status all = counts_;
  for (edge_number edge = 0; edge < max_edges; ++edge) {
    source_status& one = all.sources[edge] = sources_[edge].counts;
    const throughput& speed = sources_[edge].speed;
    one.bytes_in_flight = speed.under_way();
    one.bytes_per_s = speed.last();
    one.latency_s = speed.latency();
    one.measured_age_s = seconds_of(speed.age(now).value_or(nanoseconds(0)));
    all.bytes_in_flight += one.bytes_in_flight;
  }
  all.waiting = static_cast<std::uint64_t>(
      std::ranges::count_if(jobs_, [](const auto& each) { return each.second.session != 0; }));
  all.held = held_.size();
  const auto measured =
      std::ranges::find_if(all.sources, [](const source_status& each) { return each.bytes_per_s > 0; });
  const source_status& nearest = measured == all.sources.end() ? all.sources.front() : *measured;
  all.bytes_per_s = nearest.bytes_per_s;
  all.latency_s = nearest.latency_s;
  all.measured_age_s = nearest.measured_age_s;
  return all;
}

}  // namespace cenote::prefetch
