#include "commands/optimize/curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "commands/common.hpp"
#include "commands/optimize/capacities.hpp"
#include "commands/optimize/curve_page.hpp"
#include "commands/optimize/instances.hpp"
#include "commands/optimize/refusal.hpp"
#include "commands/optimize/time_checks.hpp"
#include "commands/optimize/trace_summary.hpp"
#include "commands/optimize/watched_work.hpp"
#include "commands/optimize/water_level_options.hpp"
#include "commands/replay/options.hpp"
#include "commands/table.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "simulation/optimize/instance_parts.hpp"
#include "simulation/optimize/interval_curve.hpp"
#include "simulation/simulation.hpp"
#include "simulation/stack_distances.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using simulation::chain_access;
using simulation::instance_parts;
using simulation::interval_curve;
using simulation::lifetime;
using simulation::lru_curve;
using simulation::replay_order;
using simulation::replay_sums;
using simulation::trace;

constexpr std::array usual_shares{0.6, 0.8, 0.9, 0.95, 0.99};
constexpr double most_capacity = 4294967295.0;

// ---------------------------------------------------------------------------------------------- the command line

struct policy_order {
  std::string policy;
  replay_order order = replay_order::reverse;
};

result<std::vector<policy_order>> parse_policies(const curve_options& options) {
  std::vector<policy_order> all;
  for (const std::string_view part : split(options.policies, ',')) {
    const bool backward = options.order == "rev" && part != "belady";
    const policy_order one{std::string(part), backward ? replay_order::reverse : replay_order::forward};
    if (auto known = simulation::check_simulated(one.policy, one.order); !known) return std::unexpected(known.error());
    if (std::ranges::find(all, one.policy, &policy_order::policy) == all.end()) all.push_back(one);
  }
  return all;
}

/// Removals of blocks though no other one needs their room.
struct removal_rules {
  simulation::lifetime lifetime;
  simulation::water_levels levels;

  [[nodiscard]] bool are_used() const noexcept { return lifetime.ms != 0 || levels.are_used(); }
};

/// All of the command line but the trace.
struct curve_request {
  std::vector<policy_order> policies;
  std::vector<std::uint32_t> capacities;  ///< none: doubled up to all distinct blocks
  std::vector<instance_quota> quotas;
  removal_rules rules;
};

// ---------------------------------------------------------------------------------------------- the curves

struct policy_point {
  std::uint64_t capacity = 0;
  std::uint64_t hit_blocks = 0;
  std::uint64_t hit_tokens = 0;
};

struct policy_curve {
  policy_order policy;
  std::vector<policy_point> points;
};

struct share_capacity {
  double share = 0;
  std::uint32_t capacity = 0;
};

/// One trace with the passes over it that answer for many capacities.
class measured_trace {
 public:
  /// The first `warm_up` requests fill the cache and are left out of the sums.
  measured_trace(const trace& requests, std::size_t warm_up, const removal_rules& rules)
      : requests_(requests), rules_(rules) {
    if (!rules.are_used()) backward_ = interval_curve::measure(requests);
    if (warm_up == 0) return;
    warm_requests_ = std::make_unique<trace>(requests.first(warm_up));
    warm_ = std::make_unique<measured_trace>(*warm_requests_, 0, rules);
  }

  /// Before a curve of LRU in the order forward.
  void measure_forward() {
    if (requests_.stores_all() && !rules_.are_used()) forward_.emplace(requests_);
    if (warm_) warm_->measure_forward();
  }

  /// No policy but belady looks ahead, so the hits of the first requests are those that they have alone.
  [[nodiscard]] result<policy_point> point_of(const policy_order& policy, std::uint32_t capacity) const {
    auto point = whole_point(policy, capacity);
    if (!point || !warm_) return point;
    const auto warm = warm_->point_of(policy, capacity);
    if (!warm) return warm;
    point->hit_blocks -= warm->hit_blocks;
    point->hit_tokens -= warm->hit_tokens;
    return point;
  }

  /// The smallest capacity of LRU in the order reverse with so much of the hits of an endless cache.
  [[nodiscard]] share_capacity capacity_for(double share) const {
    // With water levels a capacity is endless when all blocks are no more than the high one's part of it.
    const double endless = std::ceil(requests_.distinct() / rules_.levels.high) + 1;
    std::uint32_t high =
        rules_.levels.are_used() ? static_cast<std::uint32_t>(std::min(endless, most_capacity)) : requests_.distinct();
    const auto most = static_cast<double>(tokens_at(high));
    const auto wanted = static_cast<std::uint64_t>(std::ceil(share * most));
    if (backward_) {
      const std::uint32_t longest = std::min(backward_->longest(), high);
      if (tokens_at(longest) < wanted) return {share, halve(longest, high, wanted)};
      high = longest;
    }
    return {share, halve(0, high, wanted)};
  }

 private:
  [[nodiscard]] result<policy_point> whole_point(const policy_order& policy, std::uint32_t capacity) const {
    policy_point point{.capacity = capacity};
    if (capacity == 0) return point;
    const bool lru = policy.policy == "lru";
    if (lru && policy.order == replay_order::reverse && backward_ && capacity >= backward_->longest()) {
      const auto hits = backward_->hits_with(capacity);
      point.hit_blocks = hits.blocks;
      point.hit_tokens = hits.tokens;
      return point;
    }
    const bool passed = lru && policy.order == replay_order::forward && forward_;
    const auto sums = passed ? result<replay_sums>(forward_->at(capacity))
                             : simulation::simulate(requests_, policy.policy, capacity, policy.order, {},
                                                    rules_.lifetime, rules_.levels);
    if (!sums) return std::unexpected(sums.error());
    point.hit_blocks = sums->prefix_hits;
    point.hit_tokens = sums->prefix_tokens;
    return point;
  }

  /// The smallest capacity from `low` to `high`, which has them, with so many hit tokens.
  [[nodiscard]] std::uint32_t halve(std::uint32_t low, std::uint32_t high, std::uint64_t tokens) const {
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (tokens_at(middle) >= tokens) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }

  [[nodiscard]] std::uint64_t tokens_at(std::uint32_t capacity) const {
    const auto point = point_of({"lru", replay_order::reverse}, capacity);
    return point ? point->hit_tokens : 0;
  }

  const trace& requests_;
  removal_rules rules_;
  std::optional<interval_curve> backward_;
  std::optional<lru_curve> forward_;
  std::unique_ptr<trace> warm_requests_;
  std::unique_ptr<measured_trace> warm_;
};

/// The requests whose tokens the hits are a share of: those that ask, without those that only fill the cache.
struct counted_requests {
  std::uint64_t requests = 0;
  std::uint64_t tokens = 0;
  std::uint64_t blocks = 0;
};

counted_requests counted_behind(const trace& requests, std::size_t warm_up) {
  counted_requests counted;
  for (const trace::entry& each : requests.requests().subspan(warm_up)) {
    if (each.access == chain_access::write) continue;
    counted.requests += 1;
    counted.tokens += each.tokens;
    counted.blocks += each.count;
  }
  return counted;
}

struct all_curves {
  counted_requests counted;
  std::vector<policy_curve> curves;
  std::vector<share_capacity> capacity_for;
};

result<all_curves> measure(const trace& requests, const curve_request& request, std::size_t warm_up) {
  const auto& [policies, capacities, quotas, rules] = request;
  measured_trace measured(requests, warm_up, rules);
  const auto is_forward_lru = [](const policy_order& each) {
    return each.policy == "lru" && each.order == replay_order::forward;
  };
  if (std::ranges::any_of(policies, is_forward_lru)) measured.measure_forward();
  const std::size_t cells = policies.size() * capacities.size();
  std::vector<result<policy_point>> points(cells);
  all_curves all{.counted = counted_behind(requests, warm_up),
                 .curves = {},
                 .capacity_for = std::vector<share_capacity>(usual_shares.size())};
  watched_work("curve", cells + usual_shares.size()).run(cells + usual_shares.size(), [&](std::size_t i) {
    if (i < cells) {
      points[i] = measured.point_of(policies[i / capacities.size()], capacities[i % capacities.size()]);
    } else {
      all.capacity_for[i - cells] = measured.capacity_for(usual_shares[i - cells]);
    }
  });
  for (std::size_t i = 0; i < cells; ++i) {
    if (!points[i]) return std::unexpected(points[i].error());
    if (i % capacities.size() == 0) all.curves.push_back({policies[i / capacities.size()], {}});
    all.curves.back().points.push_back(*points[i]);
  }
  return all;
}

// ---------------------------------------------------------------------------------------------- instances

struct instance_curves {
  std::string name;  ///< of the instance, or of those that share a quota
  std::uint32_t distinct = 0;
  all_curves all;
};

struct curve_answer {
  std::size_t warm_up = 0;  ///< requests
  removal_rules rules;
  all_curves all;
  std::vector<instance_curves> by_instance;
};

result<std::vector<instance_curves>> measure_instances(const read_trace& read, const instance_parts& parts,
                                                       const curve_request& request, std::size_t warm_up) {
  std::vector<instance_curves> all;
  for (std::size_t place = 0; place < parts.instances().size(); ++place) {
    const trace part = parts.part(place);
    auto curves = measure(part, request, parts.count_within(place, warm_up));
    if (!curves) return std::unexpected(curves.error());
    all.push_back({instance_name(read, parts.instances()[place]), part.distinct(), std::move(*curves)});
  }
  return all;
}

/// Each instance with its own LRU in the order reverse, and one point for all.
result<curve_answer> measure_quotas(const instance_parts& parts, const std::vector<instance_quota>& quotas,
                                    const removal_rules& rules, std::size_t warm_up) {
  const policy_order lru{"lru", replay_order::reverse};
  curve_answer answer{.warm_up = warm_up,
                      .rules = rules,
                      .all = {},
                      .by_instance = std::vector<instance_curves>(parts.instances().size())};
  std::vector<result<policy_point>> points(parts.instances().size());
  watched_work("curve", points.size()).run(points.size(), [&](std::size_t place) {
    const trace part = parts.part(place);
    const std::size_t warm = parts.count_within(place, warm_up);
    const std::uint32_t blocks = quotas[parts.instances()[place]].blocks;
    points[place] = measured_trace(part, warm, rules).point_of(lru, blocks);
    answer.by_instance[place] = {quotas[parts.instances()[place]].name,
                                 part.distinct(),
                                 {.counted = counted_behind(part, warm), .curves = {}, .capacity_for = {}}};
  });
  policy_point sum;
  counted_requests& counted = answer.all.counted;
  for (std::size_t place = 0; place < points.size(); ++place) {
    if (!points[place]) return std::unexpected(points[place].error());
    auto& part = answer.by_instance[place].all;
    part.curves.push_back({lru, {*points[place]}});
    sum.capacity += points[place]->capacity;
    sum.hit_blocks += points[place]->hit_blocks;
    sum.hit_tokens += points[place]->hit_tokens;
    counted.requests += part.counted.requests;
    counted.tokens += part.counted.tokens;
    counted.blocks += part.counted.blocks;
  }
  answer.all.curves.push_back({lru, {sum}});
  return answer;
}

// ---------------------------------------------------------------------------------------------- the answer

double ratio_of(const policy_point& point, const counted_requests& counted) {
  return counted.tokens == 0 ? 0 : static_cast<double>(point.hit_tokens) / static_cast<double>(counted.tokens);
}

std::string_view name_of(replay_order order) {
  return order == replay_order::forward ? "fwd" : "rev";
}

void add_curves(ordered_json& object, const all_curves& all) {
  object["requests"] = all.counted.requests;
  object["tokens"] = all.counted.tokens;
  object["blocks"] = all.counted.blocks;
  object["curves"] = ordered_json::array();
  object["capacity_for"] = ordered_json::array();
  for (const policy_curve& curve : all.curves) {
    ordered_json points = ordered_json::array();
    for (const policy_point& each : curve.points) {
      points.push_back({{"capacity", each.capacity},
                        {"hit_blocks", each.hit_blocks},
                        {"hit_tokens", each.hit_tokens},
                        {"hit_ratio", ratio_of(each, all.counted)}});
    }
    object["curves"].push_back(
        {{"policy", curve.policy.policy}, {"order", name_of(curve.policy.order)}, {"points", std::move(points)}});
  }
  for (const share_capacity& each : all.capacity_for) {
    object["capacity_for"].push_back({{"share", each.share}, {"capacity", each.capacity}});
  }
}

ordered_json json_of(const read_trace& read, const curve_answer& answer) {
  ordered_json object = summary_json(read);
  if (answer.warm_up > 0) object["warm_up"] = answer.warm_up;
  const auto& [lifetime, levels] = answer.rules;
  add_lifetime(object, lifetime);
  if (levels.are_used()) object["water_levels"] = {{"high", levels.high}, {"low", levels.low}, {"batch", levels.batch}};
  add_curves(object, answer.all);
  if (answer.by_instance.empty()) return object;
  object["by_instance"] = ordered_json::array();
  for (const instance_curves& each : answer.by_instance) {
    ordered_json part{{"instance", each.name}, {"distinct", each.distinct}};
    add_curves(part, each.all);
    object["by_instance"].push_back(std::move(part));
  }
  return object;
}

std::string curves_text(const all_curves& all) {
  std::vector<std::string> heading{">CAPACITY"};
  for (const policy_curve& each : all.curves) {
    heading.push_back(fmt::format(">{} {}", each.policy.policy, name_of(each.policy.order)));
  }
  table rows(std::move(heading));
  for (std::size_t i = 0; i < all.curves.front().points.size(); ++i) {
    std::vector<std::string> row{std::to_string(all.curves.front().points[i].capacity)};
    for (const policy_curve& each : all.curves) row.push_back(percent(ratio_of(each.points[i], all.counted)));
    rows.add(std::move(row));
  }
  return rows.text();
}

std::string shares_text(const all_curves& all) {
  if (all.capacity_for.empty()) return "";
  table rows({">SHARE", ">CAPACITY"});
  for (const share_capacity& each : all.capacity_for) rows.add({percent(each.share), std::to_string(each.capacity)});
  return "\nSMALLEST CAPACITY with a share of what an endless cache hits (lru rev)\n" + rows.text();
}

std::string rules_text(const removal_rules& rules) {
  const auto& [lifetime, levels] = rules;
  std::string text = text_of_lifetime(lifetime);
  if (!text.empty()) text += "\n";
  if (levels.are_used()) {
    text += fmt::format("Above {} of a capacity blocks go{} until {} is full\n\n", percent(levels.high),
                        levels.batch > 1 ? fmt::format(" in batches of {}", levels.batch) : "", percent(levels.low));
  }
  return text;
}

std::string answer_text(const read_trace& read, const curve_answer& answer) {
  std::string text = summary_text(read) + "\n\n";
  const std::string warm_up = text_of_warm_up(answer.warm_up, answer.all.counted.tokens);
  if (!warm_up.empty()) text += warm_up + "\n";
  text += rules_text(answer.rules);
  text += "PREFIX-TOKEN HITS by capacity in blocks\n" + curves_text(answer.all) + shares_text(answer.all);
  for (const instance_curves& each : answer.by_instance) {
    text += fmt::format(
        "\nINSTANCE {}, with a cache of its own: {} requests, {} tokens; {} full blocks, {} of them distinct\n",
        printable(each.name), each.all.counted.requests, each.all.counted.tokens, each.all.counted.blocks,
        each.distinct);
    text += curves_text(each.all) + shares_text(each.all);
  }
  if (read.left_out > 0) text += fmt::format("\n{} of the trace's {} lines were left out\n", read.left_out, read.lines);
  return text;
}

// ---------------------------------------------------------------------------------------------- the command

/// A sample is of one cache in the order reverse, and knows the number of the requests at the end alone.
result<void> check_sample(const curve_options& options) {
  if (auto size = sample_size(options.sample); !size) return std::unexpected(size.error());
  if (!options.sample.is_wanted) return {};
  if (options.order != "rev") return refuse("--sample estimates caches in the order rev; it goes without --order fwd");
  if (!options.quota.empty() || options.by_instance)
    return refuse("--sample is of one cache for all; it goes without --quota and --by-instance");
  if (!options.water_levels.empty())
    return refuse("--sample is of caches whose blocks go where others need their room; it goes without --water-levels");
  if (!options.counting.ttl.empty())
    return refuse("--sample is of caches whose blocks go where others need their room; it goes without --ttl");
  if (options.counting.warm_up != 0)
    return refuse("--sample knows the number of requests at the end alone; it goes without --warm-up");
  return {};
}

result<void> check_together(const curve_options& options) {
  if (auto ok = check_sample(options); !ok) return ok;
  const bool apart = options.by_instance || !options.quota.empty();
  if (apart && options.trace.merge_instances) {
    return refuse(
        "--merge-instances: each instance has a cache of its own with --quota and --by-instance; only a "
        "shared one has shared blocks");
  }
  if (options.counting.warm_up != 0 && options.policies.contains("belady")) {
    return refuse("--warm-up: belady looks ahead, so its hits cannot be cut in two; other policies go with it");
  }
  if (!options.counting.ttl.empty() && options.policies.contains("belady"))
    return refuse("--ttl: belady knows no time to live, and with one it is no bound; other policies go with it");
  if (!options.water_levels.empty() && options.policies.contains("belady"))
    return refuse("--water-levels: belady knows none, and with some it is no bound; other policies go with them");
  if (options.quota.empty()) return {};
  if (options.by_instance)
    return refuse("--quota gives the hits of each instance already; it goes without --by-instance");
  if (!options.capacities.empty())
    return refuse("--quota is the capacity of each instance; it goes without --capacities");
  if (options.policies != "lru" || options.order != "rev") {
    return refuse("--quota: each instance has an LRU of order rev; it goes without --policies and --order");
  }
  return {};
}

result<curve_request> parse(const curve_options& options) {
  auto policies = parse_policies(options);
  if (!policies) return std::unexpected(policies.error());
  auto capacities = parse_points(options.capacities);
  if (!capacities) return std::unexpected(capacities.error());
  if (auto ok = check_together(options); !ok) return std::unexpected(ok.error());
  auto quotas = options.quota.empty() ? std::vector<instance_quota>{} : parse_quotas(options.quota);
  if (!quotas) return std::unexpected(quotas.error());
  const auto lifetime = options.counting.lifetime();
  if (!lifetime) return std::unexpected(lifetime.error());
  const auto levels = parse_water_levels(options.water_levels);
  if (!levels) return std::unexpected(levels.error());
  return curve_request{std::move(*policies), std::move(*capacities), std::move(*quotas), {*lifetime, *levels}};
}

/// Refused: a trace in which no time passes, where times decide.
result<void> check_times(const trace& requests, const curve_request& request) {
  for (const policy_order& each : request.policies) {
    if (auto ok = check_policy_times(requests.has_times(), each.policy); !ok) return ok;
  }
  return check_lifetime(request.rules.lifetime, requests);
}

result<curve_answer> answer_of(const read_trace& read, curve_request request, const curve_options& options) {
  const trace& requests = read.requests;
  if (auto ok = check_times(requests, request); !ok) return std::unexpected(ok.error());
  const auto warm_up =
      static_cast<std::size_t>(options.counting.warm_up / 100 * static_cast<double>(requests.requests().size()));
  if (!request.quotas.empty()) {
    const auto groups = groups_by_quota(request.quotas, read);
    if (!groups) return std::unexpected(groups.error());
    return measure_quotas(instance_parts(requests, *groups), request.quotas, request.rules, warm_up);
  }
  if (request.capacities.empty()) request.capacities = doubled_points(requests.distinct());
  curve_answer answer{.warm_up = warm_up, .rules = request.rules, .all = {}, .by_instance = {}};
  auto all = measure(requests, request, warm_up);
  if (!all) return std::unexpected(all.error());
  answer.all = std::move(*all);
  if (!options.by_instance) return answer;
  const instance_parts parts(requests);
  if (auto ok = check_by_instance(parts); !ok) return std::unexpected(ok.error());
  auto each = measure_instances(read, parts, request, warm_up);
  if (!each) return std::unexpected(each.error());
  answer.by_instance = std::move(*each);
  return answer;
}

/// Prints the answer as an object or as text, and writes the page.
exit_code finish(const curve_options& options, const std::function<ordered_json()>& object_of,
                 const std::function<std::string()>& text_of) {
  const bool has_object = options.as_json || options.report.is_given();
  const ordered_json object = has_object ? object_of() : ordered_json();
  if (options.report.is_given()) {
    if (auto ok = options.report.write(curve_page(options.trace.path, object)); !ok) return failed_with(ok.error());
  }
  fmt::print("{}", options.as_json ? object.dump() + "\n" : text_of());
  return exit_code::orderly;
}

exit_code run_sample(const curve_options& options, const curve_request& request) {
  sample_request wanted{
      .policies = {}, .capacities = request.capacities, .shares = {usual_shares.begin(), usual_shares.end()}};
  for (const policy_order& each : request.policies) wanted.policies.push_back(each.policy);
  const auto answer = measure_sample(options.trace, options.sample, wanted);
  if (!answer) return failed_with(answer.error());
  return finish(
      options, [&] { return answer->json(); }, [&] { return answer->text(); });
}

/// A trace that memory has no room for may be read in another way.
error with_remedy(const error& failure) {
  if (failure.code() != error_code::limit_exceeded) return failure;
  return {failure.code(), failure.message() + "; --sample estimates the curve in memory of a fixed size"};
}

}  // namespace

exit_code run_curve(const curve_options& options) {
  auto request = parse(options);
  if (!request) return failed_with(request.error());
  if (auto ok = options.report.check(options.trace.path); !ok) return failed_with(ok.error());
  if (options.sample.is_wanted) return run_sample(options, *request);
  const auto read = options.trace.read();
  if (!read) return failed_with(with_remedy(read.error()));
  const auto answer = answer_of(*read, std::move(*request), options);
  if (!answer) return failed_with(answer.error());
  return finish(
      options, [&] { return json_of(*read, *answer); }, [&] { return answer_text(*read, *answer); });
}

}  // namespace cenote::optimize
