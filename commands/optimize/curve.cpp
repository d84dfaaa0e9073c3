#include "commands/optimize/curve.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "commands/common.hpp"
#include "commands/optimize/capacities.hpp"
#include "commands/replay/options.hpp"
#include "commands/replay/parallel.hpp"
#include "commands/table.hpp"
#include "simulation/optimize/interval_curve.hpp"
#include "simulation/simulation.hpp"
#include "simulation/stack_distances.hpp"

namespace cenote::optimize {

namespace {

using nlohmann::ordered_json;
using replay::run_all;
using simulation::chain_access;
using simulation::interval_curve;
using simulation::lru_curve;
using simulation::replay_order;
using simulation::replay_sums;
using simulation::trace;

constexpr std::array shares{0.6, 0.8, 0.9, 0.95, 0.99};

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

// ---------------------------------------------------------------------------------------------- the curves

struct curve_point {
  std::uint32_t capacity = 0;
  std::uint64_t hit_blocks = 0;
  std::uint64_t hit_tokens = 0;
};

struct policy_curve {
  policy_order policy;
  std::vector<curve_point> points;
};

struct share_capacity {
  double share = 0;
  std::uint32_t capacity = 0;
};

/// One trace with the passes over it that answer for many capacities.
class measured_trace {
 public:
  explicit measured_trace(const trace& requests) : requests_(requests), backward_(interval_curve::measure(requests)) {}

  /// Before a curve of LRU in the order forward.
  void measure_forward() {
    if (requests_.stores_all()) forward_.emplace(requests_);
  }

  [[nodiscard]] result<curve_point> point_of(const policy_order& policy, std::uint32_t capacity) const {
    curve_point point{.capacity = capacity};
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
                             : simulation::simulate(requests_, policy.policy, capacity, policy.order);
    if (!sums) return std::unexpected(sums.error());
    point.hit_blocks = sums->prefix_hits;
    point.hit_tokens = sums->prefix_tokens;
    return point;
  }

  /// The smallest capacity of LRU in the order reverse with so much of the hits of an endless cache.
  [[nodiscard]] share_capacity capacity_for(double share) const {
    const auto most = static_cast<double>(tokens_at(requests_.distinct()));
    const auto wanted = static_cast<std::uint64_t>(std::ceil(share * most));
    std::uint32_t high = requests_.distinct();
    if (backward_) {
      const std::uint32_t longest = std::min(backward_->longest(), high);
      if (backward_->hits_with(longest).tokens < wanted)
        return {share, backward_->smallest_with(wanted).value_or(high)};
      high = longest;
    }
    std::uint32_t low = 0;
    while (low < high) {
      const std::uint32_t middle = low + (high - low) / 2;
      if (tokens_at(middle) >= wanted) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return {share, low};
  }

 private:
  [[nodiscard]] std::uint64_t tokens_at(std::uint32_t capacity) const {
    const auto point = point_of({"lru", replay_order::reverse}, capacity);
    return point ? point->hit_tokens : 0;
  }

  const trace& requests_;
  std::optional<interval_curve> backward_;
  std::optional<lru_curve> forward_;
};

struct all_curves {
  std::vector<policy_curve> curves;
  std::vector<share_capacity> capacity_for;
};

result<all_curves> measure(const trace& requests, const std::vector<policy_order>& policies,
                           const std::vector<std::uint32_t>& capacities) {
  measured_trace measured(requests);
  const auto is_forward_lru = [](const policy_order& each) {
    return each.policy == "lru" && each.order == replay_order::forward;
  };
  if (std::ranges::any_of(policies, is_forward_lru)) measured.measure_forward();
  const std::size_t cells = policies.size() * capacities.size();
  std::vector<result<curve_point>> points(cells);
  all_curves all{.curves = {}, .capacity_for = std::vector<share_capacity>(shares.size())};
  run_all(cells + shares.size(), [&](std::size_t i) {
    if (i < cells) {
      points[i] = measured.point_of(policies[i / capacities.size()], capacities[i % capacities.size()]);
    } else {
      all.capacity_for[i - cells] = measured.capacity_for(shares[i - cells]);
    }
  });
  for (std::size_t i = 0; i < cells; ++i) {
    if (!points[i]) return std::unexpected(points[i].error());
    if (i % capacities.size() == 0) all.curves.push_back({policies[i / capacities.size()], {}});
    all.curves.back().points.push_back(*points[i]);
  }
  return all;
}

// ---------------------------------------------------------------------------------------------- the answer

struct trace_counts {
  std::uint64_t requests = 0;  ///< that ask
  std::uint32_t instances = 0;
  std::uint32_t sessions = 0;
};

trace_counts counts_of(const trace& requests) {
  trace_counts counts;
  for (const trace::entry& each : requests.requests()) {
    counts.requests += each.access == chain_access::write ? 0 : 1;
    counts.instances = std::max(counts.instances, each.instance + 1);
    counts.sessions = std::max(counts.sessions, each.session + 1);
  }
  return counts;
}

double ratio_of(const curve_point& point, const trace& requests) {
  return requests.tokens() == 0 ? 0 : static_cast<double>(point.hit_tokens) / static_cast<double>(requests.tokens());
}

std::string_view name_of(replay_order order) {
  return order == replay_order::forward ? "fwd" : "rev";
}

ordered_json json_of(const read_trace& read, const all_curves& all) {
  const trace& requests = read.requests;
  const trace_counts counts = counts_of(requests);
  ordered_json object{{"format", read.format},
                      {"lines", read.lines},
                      {"left_out", read.left_out},
                      {"requests", counts.requests},
                      {"instances", counts.instances},
                      {"tokens", requests.tokens()},
                      {"blocks", requests.asked_blocks()},
                      {"distinct", requests.distinct()},
                      {"block_tokens", requests.block_tokens()},
                      {"curves", ordered_json::array()},
                      {"capacity_for", ordered_json::array()}};
  for (const policy_curve& curve : all.curves) {
    ordered_json points = ordered_json::array();
    for (const curve_point& each : curve.points) {
      points.push_back({{"capacity", each.capacity},
                        {"hit_blocks", each.hit_blocks},
                        {"hit_tokens", each.hit_tokens},
                        {"hit_ratio", ratio_of(each, requests)}});
    }
    object["curves"].push_back(
        {{"policy", curve.policy.policy}, {"order", name_of(curve.policy.order)}, {"points", std::move(points)}});
  }
  for (const share_capacity& each : all.capacity_for) {
    object["capacity_for"].push_back({{"share", each.share}, {"capacity", each.capacity}});
  }
  return object;
}

std::string curves_text(const trace& requests, const all_curves& all) {
  std::vector<std::string> heading{">CAPACITY"};
  for (const policy_curve& each : all.curves) {
    heading.push_back(fmt::format(">{} {}", each.policy.policy, name_of(each.policy.order)));
  }
  table rows(std::move(heading));
  for (std::size_t i = 0; i < all.curves.front().points.size(); ++i) {
    std::vector<std::string> row{std::to_string(all.curves.front().points[i].capacity)};
    for (const policy_curve& each : all.curves) row.push_back(percent(ratio_of(each.points[i], requests)));
    rows.add(std::move(row));
  }
  return rows.text();
}

void print_tables(const read_trace& read, const all_curves& all) {
  const trace& requests = read.requests;
  const trace_counts counts = counts_of(requests);
  fmt::print("{}: {} requests", read.format, counts.requests);
  if (counts.instances > 1) fmt::print(" of {} instances", counts.instances);
  if (counts.sessions > 1) fmt::print(" in {} sessions", counts.sessions);
  fmt::print(", {} tokens; {} full blocks of {} tokens, {} of them distinct\n\n", requests.tokens(),
             requests.asked_blocks(), requests.block_tokens(), requests.distinct());
  fmt::print("PREFIX-TOKEN HITS by capacity in blocks\n{}\n", curves_text(requests, all));
  table rows({">SHARE", ">CAPACITY"});
  for (const share_capacity& each : all.capacity_for) rows.add({percent(each.share), std::to_string(each.capacity)});
  fmt::print("SMALLEST CAPACITY with a share of what an endless cache hits (lru rev)\n{}", rows.text());
  if (read.left_out > 0) fmt::print("\n{} of the trace's {} lines were left out\n", read.left_out, read.lines);
}

}  // namespace

exit_code run_curve(const curve_options& options) {
  const auto policies = parse_policies(options);
  if (!policies) return failed_with(policies.error());
  auto capacities = parse_points(options.capacities);
  if (!capacities) return failed_with(capacities.error());
  const auto read = options.trace.read();
  if (!read) return failed_with(read.error());
  if (capacities->empty()) *capacities = doubled_points(read->requests.distinct());
  const auto all = measure(read->requests, *policies, *capacities);
  if (!all) return failed_with(all.error());
  if (options.as_json) {
    fmt::print("{}\n", json_of(*read, *all).dump());
  } else {
    print_tables(*read, *all);
  }
  return exit_code::orderly;
}

}  // namespace cenote::optimize
