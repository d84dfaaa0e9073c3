#include "simulation/simulation.hpp"

#include <algorithm>
#include <string>

#include "simulation/belady.hpp"
#include "tiers/eviction/simulated_pool.hpp"

namespace cenote::simulation {

namespace {

/// Serves a read: the leading blocks that are there are used, nothing comes in.
void read_request(eviction::simulated_pool& pool, std::span<const std::uint32_t> hits, std::uint32_t now,
                  replay_order order) {
  const bool head_first = order == replay_order::forward && pool.by().order() == eviction::touch_order::any;
  for (std::size_t i = 0; i < hits.size(); ++i) pool.touch(hits[head_first ? i : hits.size() - 1 - i], now);
}

/// One pool while it serves a request.
struct one_tier {
  eviction::simulated_pool& pool;
  std::uint32_t now;
  std::uint64_t& hits;
  chain_access access;

  [[nodiscard]] bool holds(std::uint32_t block) const noexcept { return pool.holds(block); }
  void refresh(std::uint32_t block) const { pool.refresh(block, now); }
  void use(std::uint32_t block) const {
    if (pool.holds(block) && access == chain_access::write) {
      pool.refresh(block, now);  // its read was the use
    } else if (pool.holds(block)) {
      pool.touch(block, now);
      ++hits;
    } else {
      pool.insert(block, now);
    }
  }
};

}  // namespace

replay_sums simulate(const trace& trace, eviction::policy& policy, std::uint32_t capacity, replay_order order,
                     const hit_listener& listener) {
  eviction::simulated_pool pool(policy, capacity, trace.identities());
  replay_sums sums{.blocks = trace.asked_blocks(), .tokens = trace.tokens()};
  for (const trace::entry& each : trace.requests()) {
    const auto blocks = trace.blocks(each);
    const std::size_t hits = pool.begin_request(blocks, each.partial, each.tenths());
    if (each.access != chain_access::write) {
      const std::uint64_t tokens = std::min(hits * trace.block_tokens(), each.tokens);
      sums.prefix_hits += hits;
      sums.prefix_tokens += tokens;
      if (listener) listener(static_cast<std::size_t>(&each - trace.requests().data()), std::span(&tokens, 1));
    }
    if (each.access == chain_access::read) {
      sums.stream_hits += hits;
      read_request(pool, blocks.first(hits), each.tenths(), order);
    } else {
      use_request(one_tier{pool, each.tenths(), sums.stream_hits, each.access}, blocks, hits,
                  order == replay_order::reverse, policy.order());
    }
  }
  sums.inserts = pool.inserts();
  sums.evictions = pool.evictions();
  return sums;
}

result<void> check_simulated(std::string_view policy_name, replay_order order) {
  if (policy_name == "belady") {
    if (order == replay_order::forward) return {};
    return fail(error_code::invalid_argument, "belady knows the future of the order fwd only");
  }
  const auto names = eviction::policy_names();
  if (std::ranges::find(names, policy_name) != names.end()) return {};
  std::string list;
  for (const std::string_view name : names) list.append(name).append(", ");
  return fail(error_code::invalid_argument,
              "unknown eviction policy `" + std::string(policy_name) + "`; known: " + list + "belady");
}

result<replay_sums> simulate(const trace& trace, std::string_view policy_name, std::uint32_t capacity,
                             replay_order order, const hit_listener& listener) {
  if (auto known = check_simulated(policy_name, order); !known) return std::unexpected(known.error());
  if (policy_name == "belady") {
    if (!trace.stores_all()) {
      return fail(error_code::invalid_argument, "belady is for traces whose requests store what they ask for");
    }
    const std::vector<std::uint32_t> next_uses = trace.next_uses();
    belady bound(next_uses, capacity);
    return simulate(trace, bound, capacity, order, listener);
  }
  eviction::block_links links;
  links.cover(std::min(trace.distinct(), capacity));
  auto by = eviction::make_policy(policy_name, links);
  if (!by) return std::unexpected(by.error());
  return simulate(trace, **by, capacity, order, listener);
}

}  // namespace cenote::simulation
