#include "simulation/optimize/served_trace.hpp"

#include <algorithm>

#include "simulation/tier_simulation.hpp"

namespace cenote::simulation {

namespace {

constexpr double milliseconds = 1000;

/// Collects requests as a simulation gives their hits; those before `first` are left out.
class request_collector {
 public:
  request_collector(const trace& requests, std::span<const tier_link> links, const cost_model& cost, double speed,
                    std::size_t first)
      : requests_(requests.requests()), links_(links), cost_(cost), speed_(speed), first_(first) {
    served_.requests.reserve(requests_.size());
    served_.tier_tokens.resize(links.size());
  }

  void take(std::size_t request, std::span<const std::uint64_t> tokens) {
    if (request < first_) return;
    const trace::entry& entry = requests_[request];
    const request_service service = cost_.serve(links_, tokens, entry.tokens);
    const double arrival = speed_ > 0 ? static_cast<double>(entry.time_ms) / milliseconds / speed_ : 0;
    served_.requests.push_back({.arrival = arrival, .service = service.seconds});
    std::uint64_t nearer = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      served_.tier_tokens[i] += tokens[i] - nearer;
      nearer = tokens[i];
    }
    served_.hit_tokens += nearer;
    served_.loaded_tokens += service.loaded;
    served_.gpu_s += service.seconds;
  }
  [[nodiscard]] served_trace&& served() noexcept { return std::move(served_); }

 private:
  std::span<const trace::entry> requests_;
  std::span<const tier_link> links_;
  const cost_model& cost_;
  double speed_;
  std::size_t first_;
  served_trace served_;
};

void take_without_tiers(const trace& requests, request_collector& collector) {
  for (std::size_t i = 0; i < requests.requests().size(); ++i) {
    if (requests.requests()[i].access != chain_access::write) collector.take(i, {});
  }
}

tier_stack stack_with(std::span<const tier_setup> tiers) {
  tier_stack stack{.upper_policy = tiers.front().policy,
                   .upper_capacity = tiers.front().capacity,
                   .upper_levels = tiers.front().levels,
                   .lower = {},
                   .upper_is_device = tiers.front().is_device};
  for (const tier_setup& each : tiers.subspan(1)) {
    stack.lower.push_back({.policy = each.policy,
                           .capacity = each.capacity,
                           .ingest = each.ingest,
                           .keep_copy = each.keep_copy,
                           .levels = each.levels});
  }
  return stack;
}

/// `figures` of the tiers that are there, for all of them: 0 for one that is not.
std::vector<std::uint64_t> spread(std::span<const std::uint64_t> figures, std::span<const tier_setup> tiers) {
  std::vector<std::uint64_t> all;
  all.reserve(tiers.size());
  std::size_t next = 0;
  for (const tier_setup& each : tiers) all.push_back(each.capacity > 0 ? figures[next++] : 0);
  return all;
}

/// The blocks that came into each tier.
result<std::vector<std::uint64_t>> run_tiers(const trace& requests, std::span<const tier_setup> tiers,
                                             replay_order order, const lifetime& lifetime,
                                             const hit_listener& listener) {
  if (tiers.size() == 1) {
    const auto sums = simulate(requests, tiers.front().policy, tiers.front().capacity, order, listener, lifetime,
                               tiers.front().levels);
    if (!sums) return std::unexpected(sums.error());
    return std::vector{sums->inserts};
  }
  if (lifetime.ms != 0) {
    return fail(error_code::invalid_argument, "a time to live is for one tier; take one --tier, or no --ttl");
  }
  if (!requests.stores_all()) {
    return fail(error_code::invalid_argument,
                "several tiers are for traces whose requests store what they ask for; take one --tier");
  }
  const auto sums = simulate(requests, stack_with(tiers), order, listener);
  if (!sums) return std::unexpected(sums.error());
  std::vector<std::uint64_t> written{sums->all.inserts};
  for (const lower_sums& each : sums->lower) written.push_back(each.written);
  return written;
}

/// `first`: requests that are left out. As no policy looks ahead, what they write is what they write alone.
result<served_trace> serve(const trace& trace, std::span<const tier_setup> tiers, replay_order order,
                           const cost_model& cost, double speed, const lifetime& lifetime, std::size_t first) {
  std::vector<tier_setup> present;
  std::ranges::copy_if(tiers, std::back_inserter(present), [](const tier_setup& tier) { return tier.capacity > 0; });
  std::vector<tier_link> links;
  links.reserve(present.size());
  for (const tier_setup& each : present) links.push_back(each.link);
  request_collector collector(trace, links, cost, speed, first);
  if (present.empty()) {
    take_without_tiers(trace, collector);
    served_trace bare = collector.served();
    bare.written.resize(tiers.size());
    bare.tier_tokens.resize(tiers.size());
    return bare;
  }
  const auto listener = [&](std::size_t request, std::span<const std::uint64_t> tokens) {
    collector.take(request, tokens);
  };
  auto written = run_tiers(trace, present, order, lifetime, listener);
  if (!written) return std::unexpected(written.error());
  if (first > 0) {
    const auto warm = run_tiers(trace.first(first), present, order, lifetime, {});
    if (!warm) return std::unexpected(warm.error());
    for (std::size_t i = 0; i < warm->size(); ++i) (*written)[i] -= (*warm)[i];
  }
  served_trace served = collector.served();
  served.written = spread(*written, tiers);
  served.tier_tokens = spread(served.tier_tokens, tiers);
  return served;
}

/// A request of a part by its place in the whole.
struct placed_request {
  std::size_t place = 0;
  queue_request request;
};

/// The requests of `served`, which ask and are not among the first ones, with their places.
void add_placed(std::vector<placed_request>& all, const served_trace& served, const trace& part,
                std::span<const std::size_t> places, std::size_t first) {
  std::size_t next = 0;
  for (std::size_t i = first; i < places.size(); ++i) {
    if (part.requests()[i].access == chain_access::write) continue;
    all.push_back({places[i], served.requests[next++]});
  }
}

void add_sums(served_trace& sum, const served_trace& part) {
  sum.hit_tokens += part.hit_tokens;
  sum.loaded_tokens += part.loaded_tokens;
  sum.gpu_s += part.gpu_s;
  sum.tier_tokens.front() += part.tier_tokens.front();
  sum.written.front() += part.written.front();
}

}  // namespace

std::uint64_t asked_tokens(const trace& requests, std::size_t first) {
  std::uint64_t tokens = 0;
  for (const trace::entry& each : requests.requests().subspan(first)) {
    if (each.access != chain_access::write) tokens += each.tokens;
  }
  return tokens;
}

result<served_trace> serve_trace(const trace& trace, std::span<const tier_setup> tiers, replay_order order,
                                 const cost_model& cost, double speed, const serving_rules& rules) {
  return serve(trace, tiers, order, cost, speed, rules.lifetime, rules.warm_requests(trace.requests().size()));
}

result<served_trace> serve_parts(const trace& trace, const instance_parts& parts, std::span<const std::uint32_t> blocks,
                                 const tier_setup& tier, replay_order order, const cost_model& cost, double speed,
                                 const serving_rules& rules, std::vector<served_trace>* services) {
  const std::size_t warm = rules.warm_requests(trace.requests().size());
  served_trace sum;
  sum.tier_tokens.resize(1);
  sum.written.resize(1);
  std::vector<placed_request> all;
  all.reserve(trace.requests().size());
  for (std::size_t i = 0; i < parts.instances().size(); ++i) {
    const simulation::trace part = parts.part(i);
    tier_setup own = tier;
    own.capacity = blocks[i];
    const std::size_t first = parts.count_within(i, warm);
    auto served = serve(part, std::span(&own, 1), order, cost, speed, rules.lifetime, first);
    if (!served) return served;
    add_placed(all, *served, part, parts.places(i), first);
    add_sums(sum, *served);
    if (services != nullptr) services->push_back(std::move(*served));
  }
  std::ranges::sort(all, {}, &placed_request::place);
  sum.requests.reserve(all.size());
  for (const placed_request& each : all) sum.requests.push_back(each.request);
  return sum;
}

}  // namespace cenote::simulation
