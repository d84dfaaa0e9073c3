#include "simulation/optimize/analysis.hpp"

#include <algorithm>
#include <bit>
#include <utility>

#include "simulation/optimize/interval_curve.hpp"
#include "simulation/simulation.hpp"
#include "simulation/stack_distances.hpp"

namespace cenote::simulation {

namespace {

constexpr std::uint64_t ms_per_s = 1000;
constexpr std::uint64_t least_block_tokens = 16;
constexpr std::uint64_t most_block_tokens = 1024;
constexpr std::uint64_t no_time = ~std::uint64_t{0};

bool asks(const trace::entry& request) {
  return request.access != chain_access::write;
}

bool stores(const trace::entry& request) {
  return request.access != chain_access::read;
}

std::uint64_t leading_tokens(const trace::entry& request, std::uint64_t blocks, std::uint64_t block_tokens) {
  return std::min(blocks * block_tokens, request.tokens);
}

std::uint64_t requests_asking(const trace& trace) {
  return static_cast<std::uint64_t>(std::ranges::count_if(trace.requests(), asks));
}

}  // namespace

// ---------------------------------------------------------------------------------------------- uses of blocks

void power_histogram::add(std::uint64_t value, std::uint64_t count) {
  constexpr std::uint64_t largest = std::uint64_t{1} << 63;
  if (count > 0) counts_[value >= largest ? ~std::uint64_t{0} : std::bit_ceil(value + 1)] += count;
}

std::vector<power_count> power_histogram::rows() const {
  std::vector<power_count> all;
  all.reserve(counts_.size());
  for (const auto& [limit, count] : counts_) all.push_back({limit, count});
  return all;
}

std::optional<block_reuse> measure_reuse(const trace& trace) {
  if (!trace.stores_all()) return std::nullopt;
  block_reuse reuse{.cold = trace.distinct(), .distances = {}, .times = {}};
  const lru_curve curve(trace);
  std::uint64_t nearer = 0;
  for (std::uint64_t limit = 1; limit < std::uint64_t{2} * trace.distinct(); limit *= 2) {
    const auto capacity = static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, trace.distinct()));
    const std::uint64_t hits = curve.at(capacity).stream_hits;
    if (hits > nearer) reuse.distances.push_back({limit, hits - nearer});
    nearer = hits;
  }
  power_histogram times;
  std::vector<std::uint64_t> last(trace.distinct(), no_time);
  for (const trace::entry& request : trace.requests()) {
    for (const std::uint32_t block : trace.blocks(request)) {
      if (last[block] != no_time) times.add(request.time_ms - last[block]);
      last[block] = request.time_ms;
    }
  }
  reuse.times = times.rows();
  return reuse;
}

block_uses measure_uses(const trace& trace) {
  std::vector<std::uint32_t> uses(trace.distinct());
  for (const trace::entry& request : trace.requests()) {
    if (!asks(request)) continue;
    for (const std::uint32_t block : trace.blocks(request)) ++uses[block];
  }
  std::ranges::sort(uses);
  block_uses all;
  double weighted = 0;  // uses by rank, from 1 on
  double sum = 0;
  double used = 0;
  for (const std::uint32_t each : uses) {
    if (all.frequency.empty() || all.frequency.back().uses != each) all.frequency.push_back({.uses = each});
    ++all.frequency.back().blocks;
    if (each == 0) continue;
    used += 1;
    sum += each;
    weighted += used * each;
    if (each == 1) all.one_use_share += 1;
  }
  if (used == 0) return all;
  all.one_use_share /= used;
  all.gini = std::max(0.0, 2 * weighted / (used * sum) - (used + 1) / used);
  return all;
}

// ---------------------------------------------------------------------------------------------- an endless cache

std::vector<std::uint32_t> endless_hits(const trace& trace) {
  std::vector<bool> stored(trace.distinct());
  std::vector<std::uint32_t> hits;
  hits.reserve(trace.requests().size());
  for (const trace::entry& request : trace.requests()) {
    const auto blocks = trace.blocks(request);
    const auto missing = std::ranges::find_if(blocks, [&](std::uint32_t block) { return !stored[block]; });
    hits.push_back(asks(request) ? static_cast<std::uint32_t>(missing - blocks.begin()) : 0);
    if (!stores(request)) continue;
    for (const std::uint32_t block : blocks) stored[block] = true;
  }
  return hits;
}

helpless_requests count_helpless(const trace& trace, std::span<const std::uint32_t> hits) {
  helpless_requests all;
  for (std::size_t i = 0; i < hits.size(); ++i) all.requests += asks(trace.requests()[i]) && hits[i] == 0 ? 1 : 0;
  const std::uint64_t asking = requests_asking(trace);
  if (asking > 0) all.share = static_cast<double>(all.requests) / static_cast<double>(asking);
  return all;
}

std::optional<engine_hits> measure_engine_hits(const trace& trace, std::span<const std::uint32_t> hits) {
  engine_hits all;
  for (std::size_t i = 0; i < hits.size(); ++i) {
    const trace::entry& request = trace.requests()[i];
    if (!asks(request)) continue;
    const auto tokens_of = [&](std::uint64_t blocks) {
      return std::min(blocks * trace.block_tokens(), request.tokens);
    };
    const std::uint64_t both = std::max(hits[i], request.engine_blocks);
    all.requests += request.engine_blocks > 0 ? 1 : 0;
    all.blocks += request.engine_blocks;
    all.tokens += tokens_of(request.engine_blocks);
    all.more_blocks += both - request.engine_blocks;
    all.more_tokens += tokens_of(both) - tokens_of(request.engine_blocks);
  }
  return all.requests == 0 ? std::nullopt : std::optional(all);
}

std::vector<time_window> measure_windows(const trace& trace, std::span<const std::uint32_t> hits,
                                         std::uint64_t window_ms) {
  std::vector<time_window> windows;
  std::uint32_t distinct = 0;
  for (std::size_t i = 0; i < hits.size(); ++i) {
    const trace::entry& request = trace.requests()[i];
    const std::uint64_t start = request.time_ms - request.time_ms % window_ms;
    if (windows.empty() || windows.back().start_ms != start) windows.push_back({.start_ms = start});
    time_window& window = windows.back();
    // Blocks are numbered as they first come.
    for (const std::uint32_t block : trace.blocks(request)) distinct = std::max(distinct, block + 1);
    window.distinct = distinct;
    if (!asks(request)) continue;
    window.requests += 1;
    window.references += request.count;
    window.hit_blocks += hits[i];
    window.hit_tokens += leading_tokens(request, hits[i], trace.block_tokens());
  }
  return windows;
}

// ---------------------------------------------------------------------------------------------- sessions, instances

block_sharing measure_sharing(const trace& trace, sharer kind) {
  const auto party = [&](const trace::entry& each) { return kind == sharer::session ? each.session : each.instance; };
  struct place {
    std::uint32_t party = 0;
    bool is_used = false;
    bool is_shared = false;
    std::uint64_t references = 0;
  };
  std::vector<place> places(trace.distinct());
  std::vector<std::uint32_t> parties;
  for (const trace::entry& request : trace.requests()) {
    parties.push_back(party(request));
    for (const std::uint32_t block : trace.blocks(request)) {
      place& here = places[block];
      here.is_shared = here.is_shared || (here.is_used && here.party != party(request));
      here.party = party(request);
      here.is_used = true;
      here.references += asks(request) ? 1 : 0;
    }
  }
  std::ranges::sort(parties);
  const auto surplus = std::ranges::unique(parties);
  block_sharing all{.sharers = static_cast<std::uint64_t>(surplus.begin() - parties.begin())};
  for (const place& each : places) {
    if (!each.is_shared) continue;
    all.shared_blocks += 1;
    all.shared_references += each.references;
  }
  return all;
}

namespace {

struct session_request {
  std::uint32_t session = 0;
  std::uint64_t time_ms = 0;
};

struct delay {
  std::uint32_t turn = 0;
  std::uint64_t ms = 0;
  auto operator<=>(const delay&) const = default;
};

/// Those of a turn, ascending.
turn_delay summary_of(std::span<const delay> delays) {
  const auto ranked = [&](std::size_t percent) { return delays[(delays.size() * percent + 99) / 100 - 1].ms; };
  return {.turn = delays.front().turn,
          .requests = delays.size(),
          .median_ms = ranked(50),
          .p90_ms = ranked(90),
          .longest_ms = delays.back().ms};
}

}  // namespace

std::optional<std::vector<turn_delay>> measure_turns(const trace& trace) {
  std::vector<session_request> requests;
  for (const trace::entry& each : trace.requests()) {
    if (asks(each)) requests.push_back({each.session, each.time_ms});
  }
  std::ranges::stable_sort(requests, {}, &session_request::session);
  if (requests.empty() || requests.front().session == requests.back().session) return std::nullopt;
  std::vector<delay> delays;
  std::uint32_t turn = 1;
  for (std::size_t i = 1; i < requests.size(); ++i) {
    turn = requests[i].session == requests[i - 1].session ? turn + 1 : 1;
    if (turn > 1) delays.push_back({std::min(turn, most_turns), requests[i].time_ms - requests[i - 1].time_ms});
  }
  std::ranges::sort(delays);
  std::vector<turn_delay> rows;
  for (std::size_t begin = 0; begin < delays.size();) {
    std::size_t end = begin;
    while (end < delays.size() && delays[end].turn == delays[begin].turn) ++end;
    rows.push_back(summary_of(std::span(delays).subspan(begin, end - begin)));
    begin = end;
  }
  return rows;
}

// ---------------------------------------------------------------------------------------------- sizes of blocks

namespace {

/// The same requests in blocks `factor` times as large: each stands for all before it, so the last of them names it.
trace larger_blocks(const trace& fine, std::uint64_t factor) {
  trace made(fine.block_tokens() * factor);
  std::vector<std::uint64_t> ids;
  for (const trace::entry& each : fine.requests()) {
    const auto all = fine.ids(each);
    ids.clear();
    for (std::size_t i = factor; i <= all.size(); i += factor) ids.push_back(all[i - 1]);
    made.add(trace::arrival_of(each), ids);
  }
  return made;
}

block_size size_of(const trace& trace, const interval_curve& curve, std::uint32_t capacity) {
  block_size size{.block_tokens = trace.block_tokens(), .capacity = capacity};
  size.endless_tokens = curve.hits_with(std::max(trace.distinct(), curve.longest())).tokens;
  if (capacity >= curve.longest()) {
    size.hit_tokens = curve.hits_with(capacity).tokens;
  } else if (capacity > 0) {
    const auto sums = simulate(trace, "lru", capacity, replay_order::reverse);
    size.hit_tokens = sums ? sums->prefix_tokens : 0;
  }
  return size;
}

}  // namespace

std::optional<std::vector<block_size>> measure_block_sizes(const trace& trace, std::uint32_t capacity) {
  const auto own = interval_curve::measure(trace);
  if (!own) return std::nullopt;
  std::vector<block_size> sizes{size_of(trace, *own, capacity)};
  for (std::uint64_t factor = 2; factor * trace.block_tokens() <= most_block_tokens; factor *= 2) {
    if (factor * trace.block_tokens() < least_block_tokens) continue;
    const auto larger = larger_blocks(trace, factor);
    const auto curve = interval_curve::measure(larger);
    if (!curve) return std::nullopt;
    sizes.push_back(size_of(larger, *curve, static_cast<std::uint32_t>(capacity / factor)));
  }
  return sizes;
}

// ---------------------------------------------------------------------------------------------- time to live

std::optional<std::vector<ttl_hits>> measure_ttls(const trace& trace) {
  if (!trace.stores_all()) return std::nullopt;
  struct hits {
    std::uint64_t blocks = 0;
    std::uint64_t tokens = 0;
  };
  std::map<std::uint64_t, hits> by_seconds;
  std::vector<std::uint64_t> last(trace.distinct(), no_time);
  for (const trace::entry& request : trace.requests()) {
    std::uint64_t longest = 0;  // since one of the leading blocks was used: all must be there
    std::uint64_t tokens = 0;
    for (const std::uint32_t block : trace.blocks(request)) {
      if (last[block] == no_time) break;
      longest = std::max(longest, request.time_ms - last[block]);
      const std::uint64_t more = std::min(tokens + trace.block_tokens(), request.tokens);
      hits& here = by_seconds[std::bit_ceil(longest / ms_per_s + 1)];
      here.blocks += 1;
      here.tokens += more - tokens;
      tokens = more;
    }
    for (const std::uint32_t block : trace.blocks(request)) last[block] = request.time_ms;
  }
  std::vector<ttl_hits> rows;
  const std::uint64_t most = by_seconds.empty() ? 0 : by_seconds.rbegin()->first;
  for (std::uint64_t seconds = 1; seconds <= most; seconds *= 2) {
    ttl_hits row = rows.empty() ? ttl_hits{} : rows.back();
    row.seconds = seconds;
    if (const auto here = by_seconds.find(seconds); here != by_seconds.end()) {
      row.hit_blocks += here->second.blocks;
      row.hit_tokens += here->second.tokens;
    }
    rows.push_back(row);
  }
  return rows;
}

}  // namespace cenote::simulation
