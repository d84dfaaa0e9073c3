#include "simulation/simulation.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>

#include "simulation/belady.hpp"
#include "simulation/random_lru.hpp"
#include "tiers/eviction/simulated_pool.hpp"

namespace cenote::simulation {

namespace {

/// Serves a read: the leading blocks that are there are used, nothing comes in.
void read_request(eviction::simulated_pool& pool, std::span<const std::uint32_t> hits, std::uint32_t now,
                  replay_order order) {
  const bool head_first = order == replay_order::forward && pool.by().order() == eviction::touch_order::any;
  for (std::size_t i = 0; i < hits.size(); ++i) pool.touch(hits[head_first ? i : hits.size() - 1 - i], now);
}

/// One pool whose blocks have a time to live.
class living_blocks {
 public:
  living_blocks(eviction::simulated_pool& pool, const lifetime& rule, std::uint32_t blocks)
      : pool_(pool), ends_(rule, blocks) {}

  /// Removes the blocks that have ended.
  void begin_request(std::uint64_t now_ms) {
    now_ms_ = now_ms;
    while (const auto ended = ends_.next_ended(now_ms)) {
      if (pool_.holds(*ended)) pool_.remove(*ended);
    }
  }
  /// `block` came in.
  void insert(std::uint32_t block) { ends_.begin(block, now_ms_); }
  /// These blocks were used, where they are here.
  void use(std::span<const std::uint32_t> blocks) {
    for (const std::uint32_t block : blocks) {
      if (pool_.holds(block)) ends_.use(block, now_ms_);
    }
  }

 private:
  eviction::simulated_pool& pool_;
  block_lifetimes ends_;
  std::uint64_t now_ms_ = 0;
};

/// One pool while it serves a request.
struct one_tier {
  eviction::simulated_pool& pool;
  std::uint32_t now;
  std::uint64_t& hits;
  chain_access access;
  living_blocks* living = nullptr;  ///< none: blocks live until others need their room

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
      if (living != nullptr && pool.holds(block)) living->insert(block);
    }
  }
};

/// Uses the blocks of a request, of which the first `hits` are here. The blocks that were there when their turn came.
std::uint64_t serve(eviction::simulated_pool& pool, const trace::entry& request, std::span<const std::uint32_t> blocks,
                    std::size_t hits, replay_order order, living_blocks* living) {
  if (request.access == chain_access::read) {
    read_request(pool, blocks.first(hits), request.tenths(), order);
    if (living != nullptr) living->use(blocks.first(hits));
    return hits;
  }
  std::uint64_t stream_hits = 0;
  use_request(one_tier{pool, request.tenths(), stream_hits, request.access, living}, blocks, hits,
              order == replay_order::reverse, pool.by().order());
  if (living != nullptr) living->use(blocks);
  return stream_hits;
}

/// The policies that no tier has.
constexpr std::array<std::string_view, 2> own_policies{"random", "belady"};

}  // namespace

replay_sums simulate(const trace& trace, eviction::policy& policy, std::uint32_t capacity, replay_order order,
                     const hit_listener& listener, const lifetime& lifetime, const water_levels& levels) {
  eviction::simulated_pool pool(policy, capacity, trace.identities());
  std::optional<living_blocks> living;
  if (lifetime.ms != 0) living.emplace(pool, lifetime, trace.distinct());
  replay_sums sums{.blocks = trace.asked_blocks(), .tokens = trace.tokens()};
  for (const trace::entry& each : trace.requests()) {
    const auto blocks = trace.blocks(each);
    if (living) living->begin_request(each.time_ms);
    const std::size_t hits = pool.begin_request(blocks, each.partial, each.tenths());
    if (each.access != chain_access::write) {
      const std::uint64_t tokens = std::min(hits * trace.block_tokens(), each.tokens);
      sums.prefix_hits += hits;
      sums.prefix_tokens += tokens;
      if (listener) listener(static_cast<std::size_t>(&each - trace.requests().data()), std::span(&tokens, 1));
    }
    sums.stream_hits += serve(pool, each, blocks, hits, order, living ? &*living : nullptr);
    for (std::uint32_t left = levels.surplus(pool.size(), capacity); left > 0; --left) pool.evict(each.tenths());
  }
  sums.inserts = pool.inserts();
  sums.evictions = pool.evictions();
  return sums;
}

std::string simulated_policies() {
  std::string list;
  for (const std::string_view name : eviction::policy_names()) list.append(name).append(", ");
  return list.append(own_policies[0]).append(" and ").append(own_policies[1]);
}

result<void> check_simulated(std::string_view policy_name, replay_order order) {
  if (policy_name == "belady" && order != replay_order::forward)
    return fail(error_code::invalid_argument, "belady knows the future of the order fwd only");
  const auto tiers = eviction::policy_names();
  if (std::ranges::find(tiers, policy_name) != tiers.end()) return {};
  if (std::ranges::find(own_policies, policy_name) != own_policies.end()) return {};
  return fail(error_code::invalid_argument,
              "unknown eviction policy `" + std::string(policy_name) + "`; known: " + simulated_policies());
}

result<replay_sums> simulate(const trace& trace, std::string_view policy_name, std::uint32_t capacity,
                             replay_order order, const hit_listener& listener, const lifetime& lifetime,
                             const water_levels& levels) {
  if (auto known = check_simulated(policy_name, order); !known) return std::unexpected(known.error());
  if (policy_name == "random") {
    random_lru drawn;
    return simulate(trace, drawn, capacity, order, listener, lifetime, levels);
  }
  if (policy_name == "belady") {
    if (!trace.stores_all()) {
      return fail(error_code::invalid_argument, "belady is for traces whose requests store what they ask for");
    }
    if (lifetime.ms != 0) return fail(error_code::invalid_argument, "belady knows no time to live");
    if (levels.are_used()) return fail(error_code::invalid_argument, "belady knows no water levels");
    const std::vector<std::uint32_t> next_uses = trace.next_uses();
    belady bound(next_uses, capacity);
    return simulate(trace, bound, capacity, order, listener);
  }
  eviction::block_links links;
  links.cover(std::min(trace.distinct(), capacity));
  auto by = eviction::make_policy(policy_name, links);
  if (!by) return std::unexpected(by.error());
  return simulate(trace, **by, capacity, order, listener, lifetime, levels);
}

}  // namespace cenote::simulation
