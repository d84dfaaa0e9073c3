#include "simulation/tier_simulation.hpp"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "tiers/eviction/simulated_pool.hpp"

namespace cenote::simulation {

namespace {

/// Both tiers while they serve a request.
struct two_tiers {
  eviction::simulated_pool& upper;
  eviction::simulated_pool& lower;
  cenote::ingest ingest;
  bool keep_copy;
  tier_sums& sums;
  std::vector<std::uint32_t> brought_up{};  ///< by block: the request it came up for, from 1
  std::vector<std::uint32_t> leading{};     ///< by block: the request that it was last a hit of, from 1
  std::vector<std::uint32_t> wanted{};
  std::uint32_t request = 0;
  std::uint32_t now = 0;

  [[nodiscard]] bool holds(std::uint32_t block) const noexcept { return upper.holds(block) || lower.holds(block); }

  void write(std::uint32_t block) {
    if (lower.holds(block)) return;
    const std::uint64_t before = lower.inserts();
    lower.insert(block, now);
    sums.written += lower.inserts() - before;
  }
  /// As a node does: what the upper policy does not want may still be worth a place below.
  void insert(std::uint32_t block) { push_down(upper.insert(block, now, true)); }
  void push_down(std::uint32_t gone) {
    if (gone == eviction::simulated_pool::none || ingest != cenote::ingest::evicted) return;
    write(gone);
  }
  void promote(std::uint32_t block) {
    leave_below(block);
    insert(block);
  }
  void leave_below(std::uint32_t block) {
    if (keep_copy) {
      lower.touch(block, now);
    } else {
      lower.remove(block);
    }
  }
  /// As a prefetch does, from head to tail, before the request uses its blocks; those that are up stay meanwhile.
  void bring_up(std::span<const std::uint32_t> blocks) {
    wanted.clear();
    std::ranges::copy_if(blocks, std::back_inserter(wanted), [&](std::uint32_t block) { return !upper.holds(block); });
    sums.promoted += wanted.size();
    for (const std::uint32_t block : blocks) leading[block] = request;
    const auto is_held = [&](std::uint32_t block) { return leading[block] == request; };
    for (const std::uint32_t block : wanted) {
      brought_up[block] = request;
      if (!lower.holds(block)) continue;  // what was pushed down took its place
      leave_below(block);
      push_down(upper.insert(block, now, true, is_held));
    }
  }
  void use(std::uint32_t block) {
    if (upper.holds(block)) {
      upper.touch(block, now);
      ++sums.both.stream_hits;
      if (brought_up[block] != request) ++sums.upper_hits;
      if (ingest == cenote::ingest::hot) write(block);
    } else if (lower.holds(block)) {
      ++sums.both.stream_hits;
      promote(block);
    } else {
      insert(block);
      if (ingest == cenote::ingest::all) write(block);
    }
  }
  /// A block that was pushed down by the rest of its own request stays there, as in a node. Where each block is in one
  /// tier only it comes up again: it is one of the latest, and both tiers together keep one order.
  void refresh(std::uint32_t block) {
    if (upper.holds(block)) {
      upper.refresh(block, now);
    } else if (!keep_copy) {
      promote(block);
    }
  }
};

tier_sums run(const trace& trace, two_tiers tiers, replay_order order) {
  tier_sums& sums = tiers.sums;
  sums.both.blocks = trace.stream().size();
  sums.both.tokens = trace.tokens();
  for (const trace::entry& each : trace.requests()) {
    const auto blocks = trace.blocks(each);
    const auto lead = [&](auto&& holds) {
      return static_cast<std::size_t>(std::ranges::find_if_not(blocks, holds) - blocks.begin());
    };
    const std::size_t hits = lead([&](std::uint32_t block) { return tiers.holds(block); });
    const std::size_t above = lead([&](std::uint32_t block) { return tiers.upper.holds(block); });
    sums.both.prefix_hits += hits;
    sums.both.prefix_tokens += std::min(hits * trace::tokens_per_block, each.tokens);
    sums.upper_tokens += std::min(above * trace::tokens_per_block, each.tokens);
    tiers.now = each.time;
    ++tiers.request;
    tiers.bring_up(blocks.first(hits));
    tiers.upper.begin_request(blocks, trace.ids(each), each.partial, each.time);
    use_request(tiers, blocks, hits, order == replay_order::reverse, tiers.upper.by().order());
  }
  sums.both.inserts = tiers.upper.inserts();
  sums.both.evictions = tiers.upper.evictions();
  sums.lower_evictions = tiers.lower.evictions();
  return sums;
}

}  // namespace

result<tier_sums> simulate(const trace& trace, const tier_pair& tiers, replay_order order) {
  if (!tiers.keep_copy && tiers.ingest != cenote::ingest::evicted) {
    return fail(
        error_code::invalid_argument,
        "without a lower copy a block comes down only when it is evicted: keep-copy false needs ingest evicted");
  }
  eviction::block_links upper_links;
  eviction::block_links lower_links;
  upper_links.cover(std::min(trace.distinct(), tiers.upper_capacity));
  lower_links.cover(std::min(trace.distinct(), tiers.lower_capacity));
  auto upper = eviction::make_policy(tiers.upper_policy, upper_links);
  if (!upper) return std::unexpected(upper.error());
  auto lower = eviction::make_policy(tiers.lower_policy, lower_links);
  if (!lower) return std::unexpected(lower.error());
  eviction::simulated_pool above(**upper, tiers.upper_capacity, trace.identities());
  eviction::simulated_pool below(**lower, tiers.lower_capacity, trace.identities());
  tier_sums sums;
  return run(trace,
             {.upper = above,
              .lower = below,
              .ingest = tiers.ingest,
              .keep_copy = tiers.keep_copy,
              .sums = sums,
              .brought_up = std::vector<std::uint32_t>(trace.distinct()),
              .leading = std::vector<std::uint32_t>(trace.distinct())},
             order);
}

}  // namespace cenote::simulation
