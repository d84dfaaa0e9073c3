#include "simulation/tier_simulation.hpp"

#include <algorithm>
#include <deque>
#include <iterator>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tiers/eviction/simulated_pool.hpp"

namespace cenote::simulation {

namespace {

constexpr std::uint32_t no_block = eviction::simulated_pool::none;

/// A policy with what it stands on.
struct pool_of_tier {
  eviction::block_links links;
  std::unique_ptr<eviction::policy> policy;
  std::optional<eviction::simulated_pool> pool;

  result<void> open(const trace& trace, const std::string& name, std::uint32_t capacity) {
    links.cover(std::min(trace.distinct(), capacity));
    auto made = eviction::make_policy(name, links);
    if (!made) return std::unexpected(made.error());
    policy = std::move(*made);
    pool.emplace(*policy, capacity, trace.identities());
    return {};
  }
};

/// All tiers while they serve a request.
struct serving_tiers {
  struct lower {
    const lower_tier& options;
    eviction::simulated_pool& pool;
    lower_sums& sums;
  };
  eviction::simulated_pool& upper;
  std::vector<lower> lower_tiers;
  tier_sums& sums;
  bool upper_is_device = false;
  std::vector<std::uint32_t> brought_up;  ///< by block: the request it came up for, from 1
  std::vector<std::uint32_t> leading;     ///< by block: the request that it was last a hit of, from 1
  std::vector<std::uint8_t> copies;  ///< by block above: a bit for each lower tier that it has come up from or gone to
  std::vector<std::uint32_t> absent{};
  std::uint32_t request = 0;
  std::uint32_t now = 0;

  /// The first lower tier that has it; null: none.
  [[nodiscard]] lower* holder(std::uint32_t block) noexcept {
    const auto found = std::ranges::find_if(lower_tiers, [&](const lower& each) { return each.pool.holds(block); });
    return found == lower_tiers.end() ? nullptr : &*found;
  }
  [[nodiscard]] bool holds(std::uint32_t block) noexcept { return upper.holds(block) || holder(block) != nullptr; }

  void write(lower& target, std::uint32_t block) {
    const bool above_others =
        upper_is_device && is_first(target) && lower_tiers.size() > 1;  // as a node's DRAM: takes each one
    write(target, block, above_others, [](std::uint32_t) { return false; });
  }
  template <class Predicate>
  void write(lower& target, std::uint32_t block, bool is_forced, Predicate&& is_held) {
    if (target.pool.holds(block)) return;
    const std::uint64_t before = target.pool.inserts();
    const std::uint32_t gone = target.pool.insert(block, now, is_forced, is_held);
    target.sums.written += target.pool.inserts() - before;
    push_down_from(target, gone);
  }
  void push_down_from(lower& tier, std::uint32_t victim) {
    if (victim == no_block) return;
    const bool counts_as_above = upper.holds(victim) && !(upper_is_device && is_first(tier));
    if (!counts_as_above) push_down(victim, static_cast<std::size_t>(&tier - lower_tiers.data()) + 1);
  }
  /// Makes room ahead of need, from the upper tier down, as what leaves one may fill the next.
  void keep_levels(const water_levels& upper_levels) {
    for (std::uint32_t left = upper_levels.surplus(upper.size(), upper.capacity()); left > 0; --left)
      push_down(upper.evict(now));
    for (lower& each : lower_tiers) {
      std::uint32_t left = each.options.levels.surplus(each.pool.size(), each.pool.capacity());
      for (; left > 0; --left) push_down_from(each, each.pool.evict(now));
    }
  }
  [[nodiscard]] bool is_first(const lower& tier) const noexcept { return &tier == lower_tiers.data(); }
  [[nodiscard]] std::uint8_t bit_of(const lower& tier) const noexcept {
    return static_cast<std::uint8_t>(1U << (&tier - lower_tiers.data()));
  }
  /// To a tier that has the block already a write is a use of it, as in a node. What came up from there is not written
  /// again.
  void write_where(ingest moment, std::uint32_t block) {
    for (lower& each : lower_tiers) {
      if (each.options.ingest == moment) write_copy(each, block);
    }
  }
  void write_copy(lower& target, std::uint32_t block) {
    if ((copies[block] & bit_of(target)) == 0 && target.pool.holds(block)) target.pool.touch(block, now);
    write(target, block);
    copies[block] |= bit_of(target);
  }
  /// Inserts as a node does: a block that the upper policy does not admit may still be worth a place below.
  void insert(std::uint32_t block) { push_down(upper.insert(block, now, true)); }
  /// Writes a block that left the tier before `first` to the next one that takes such blocks, unless one on the way has
  /// it.
  void push_down(std::uint32_t block, std::size_t first = 0) {
    if (block == no_block) return;
    const std::size_t reached =
        upper_is_device && first == 0 ? std::min<std::size_t>(1, lower_tiers.size()) : lower_tiers.size();
    for (lower& each : std::span(lower_tiers).first(reached).subspan(first)) {
      if (each.pool.holds(block)) {
        if (first == 0 && (copies[block] & bit_of(each)) == 0) each.pool.touch(block, now);
        return;
      }
      // A node's DRAM is asked once more for what leaves a device.
      const ingest moment = each.options.ingest;
      const bool takes = moment == ingest::evicted || (upper_is_device && first == 0 && moment != ingest::none);
      if (takes) return write(each, block);
    }
  }
  void promote(lower& source, std::uint32_t block) {
    leave_below(source, block);
    if (upper_is_device) pass_dram(block, [](std::uint32_t) { return false; });
    insert(block);
  }
  template <class Predicate>
  void pass_dram(std::uint32_t block, Predicate&& is_held) {
    write(lower_tiers.front(), block, true, is_held);
  }
  void leave_below(lower& source, std::uint32_t block) {
    copies[block] = source.options.keep_copy ? bit_of(source) : 0;
    if (source.options.keep_copy) {
      source.pool.touch(block, now);
    } else {
      source.pool.remove(block);
    }
  }
  /// As a prefetch does, from head to tail, before the request uses its blocks: all are read before others go down for
  /// them; those that are up stay meanwhile.
  void bring_up(std::span<const std::uint32_t> blocks) {
    absent.clear();
    std::ranges::copy_if(blocks, std::back_inserter(absent), [&](std::uint32_t block) { return !upper.holds(block); });
    for (const std::uint32_t block : absent) {
      lower& from = *holder(block);
      ++from.sums.promoted;
      leave_below(from, block);
      brought_up[block] = request;
    }
    for (const std::uint32_t block : blocks) leading[block] = request;
    const auto is_held = [&](std::uint32_t block) { return leading[block] == request; };
    for (const std::uint32_t block : absent) {
      if (upper_is_device) pass_dram(block, is_held);
      push_down(upper.insert(block, now, true, is_held));
    }
  }
  void use(std::uint32_t block) {
    if (upper.holds(block)) {
      upper.touch(block, now);
      ++sums.all.stream_hits;
      if (brought_up[block] != request) ++sums.upper_hits;
      write_where(ingest::hot, block);
    } else if (lower* const from = holder(block); from == nullptr) {
      put(block);
    } else {
      ++sums.all.stream_hits;
      const bool is_behind_prefix = leading[block] != request;
      if (is_behind_prefix && !upper_is_device) {
        put(block);
      } else {
        promote(*from, block);
      }
    }
  }
  /// An engine computes all that is behind the prefix and stores it above, also what a lower tier has.
  void put(std::uint32_t block) {
    copies[block] = 0;
    insert(block);
    write_where(ingest::all, block);
  }
  /// A block that was pushed down by the rest of its own request stays there, as in a node. Where each block is in one
  /// tier only it comes up again: it is one of the latest, and the tiers together keep one order.
  void refresh(std::uint32_t block) {
    if (upper.holds(block)) {
      upper.refresh(block, now);
    } else if (lower* const from = holder(block); !from->options.keep_copy) {
      promote(*from, block);
    }
  }
};

/// Leading blocks that each tier or one before it has, from the upper one on.
std::vector<std::size_t> leads_of(serving_tiers& tiers, std::span<const std::uint32_t> blocks) {
  std::vector<std::size_t> leads(tiers.lower_tiers.size() + 1);
  const auto has = [&](std::uint32_t block, std::size_t depth) {
    return tiers.upper.holds(block) || std::ranges::any_of(std::span(tiers.lower_tiers).first(depth),
                                                           [&](auto& each) { return each.pool.holds(block); });
  };
  std::size_t lead = 0;
  for (std::size_t most = 0; most < leads.size(); ++most) {
    while (lead < blocks.size() && has(blocks[lead], most)) ++lead;
    leads[most] = lead;
  }
  return leads;
}

void run(const trace& trace, serving_tiers tiers, const water_levels& upper_levels, replay_order order,
         const hit_listener& listener) {
  tier_sums& sums = tiers.sums;
  std::vector<std::uint64_t> tokens(tiers.lower_tiers.size() + 1);
  sums.all.blocks = trace.stream().size();
  sums.all.tokens = trace.tokens();
  for (const trace::entry& each : trace.requests()) {
    const auto blocks = trace.blocks(each);
    const auto leads = leads_of(tiers, blocks);
    std::ranges::transform(leads, tokens.begin(), [&](std::size_t lead) {
      return std::min<std::uint64_t>(lead * trace.block_tokens(), each.tokens);
    });
    sums.all.prefix_hits += leads.back();
    sums.all.prefix_tokens += tokens.back();
    sums.upper_tokens += tokens.front();
    for (std::size_t i = 0; i < tiers.lower_tiers.size(); ++i) {
      tiers.lower_tiers[i].sums.prefix_tokens += tokens[i + 1] - tokens[i];
    }
    if (listener) listener(tiers.request, tokens);
    tiers.now = each.tenths();
    ++tiers.request;
    tiers.bring_up(blocks.first(leads.back()));
    tiers.upper.begin_request(blocks, each.partial, each.tenths());
    use_request(tiers, blocks, leads.back(), order == replay_order::reverse, tiers.upper.by().order());
    tiers.keep_levels(upper_levels);
  }
  sums.all.inserts = tiers.upper.inserts();
  sums.all.evictions = tiers.upper.evictions();
  for (auto& each : tiers.lower_tiers) each.sums.evictions = each.pool.evictions();
}

}  // namespace

result<tier_sums> simulate(const trace& trace, const tier_stack& tiers, replay_order order,
                           const hit_listener& listener) {
  const auto is_lost = [](const lower_tier& each) { return !each.keep_copy && each.ingest != ingest::evicted; };
  if (std::ranges::any_of(tiers.lower, is_lost)) {
    return fail(
        error_code::invalid_argument,
        "without a lower copy a block comes down only when it is evicted: keep-copy false needs ingest evicted");
  }
  pool_of_tier upper;
  if (auto ok = upper.open(trace, tiers.upper_policy, tiers.upper_capacity); !ok) return std::unexpected(ok.error());
  std::deque<pool_of_tier> lower_tiers;  // policies point at their links
  tier_sums sums;
  sums.lower.resize(tiers.lower.size());
  serving_tiers serving{.upper = *upper.pool,
                        .lower_tiers = {},
                        .sums = sums,
                        .upper_is_device = tiers.upper_is_device,
                        .brought_up = std::vector<std::uint32_t>(trace.distinct()),
                        .leading = std::vector<std::uint32_t>(trace.distinct()),
                        .copies = std::vector<std::uint8_t>(trace.distinct())};
  for (std::size_t i = 0; i < tiers.lower.size(); ++i) {
    const lower_tier& options = tiers.lower[i];
    pool_of_tier& made = lower_tiers.emplace_back();
    if (auto ok = made.open(trace, options.policy, options.capacity); !ok) return std::unexpected(ok.error());
    serving.lower_tiers.push_back({options, *made.pool, sums.lower[i]});
  }
  run(trace, std::move(serving), tiers.upper_levels, order, listener);
  return sums;
}

}  // namespace cenote::simulation
