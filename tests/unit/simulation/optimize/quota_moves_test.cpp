#include "simulation/optimize/quota_moves.hpp"

#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <list>
#include <numeric>
#include <random>
#include <unordered_map>

#include "simulation/optimize/sampled_curve.hpp"

using namespace cenote::simulation;

namespace {

constexpr std::uint64_t block_bytes = 4096;

/// LRU of single blocks, whose capacity may change.
class model_cache {
 public:
  bool use(std::uint64_t block, std::uint64_t capacity) {
    const auto found = places_.find(block);
    const bool is_hit = found != places_.end();
    if (is_hit) order_.erase(found->second);
    order_.push_front(block);
    places_[block] = order_.begin();
    while (order_.size() > capacity) {
      places_.erase(order_.back());
      order_.pop_back();
    }
    return is_hit;
  }

 private:
  std::list<std::uint64_t> order_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> places_;
};

/// A group whose blocks are drawn by `draw`, with the curve that a node would have of it.
struct model_group {
  void serve(int requests) {
    group.requested = static_cast<std::uint64_t>(requests);
    group.hits = 0;
    for (int i = 0; i < requests; ++i) {
      const std::uint64_t block = draw();
      curve.add(std::array{block});
      group.hits += cache.use(block, group.quota / block_bytes) ? 1U : 0U;
    }
    all_requested += group.requested;
    all_hits += group.hits;
    group.members = {{.share = 1, .tokens = static_cast<double>(requests), .points = {}}};
    for (std::uint64_t capacity = 64; capacity <= 16'384; capacity = capacity * 5 / 4) {
      if (const auto point = curve.estimate(capacity)) {
        group.members[0].points.push_back({.bytes = static_cast<double>(capacity * block_bytes),
                                           .hit_ratio = 1 - point->miss_ratio,
                                           .error = point->error});
      }
    }
  }

  quota_group group;
  std::function<std::uint64_t()> draw;
  sampled_curve curve{{.largest = 16'384, .half_life = 50'000}};
  model_cache cache{};
  std::uint64_t all_requested = 0, all_hits = 0;
};

quota_group group_of(std::string name, std::uint64_t blocks) {
  return {.name = std::move(name),
          .quota = blocks * block_bytes,
          .low = 100 * block_bytes,
          .high = 8'000 * block_bytes,
          .members = {}};
}

/// Serves an interval and moves quotas as it is decided.
std::optional<quota_move> run_interval(quota_moves& moves, std::array<model_group*, 2> all, int requests) {
  std::vector<quota_group> groups;
  groups.reserve(all.size());
  for (model_group* each : all) {
    each->serve(requests);
    groups.push_back(each->group);
  }
  const auto move = moves.decide(groups);
  if (move) {
    for (model_group* each : all) {
      if (each->group.name == move->giver) each->group.quota -= move->bytes;
      if (each->group.name == move->taker) each->group.quota += move->bytes;
    }
  }
  return move;
}

double share_of_hits(std::array<model_group*, 2> all) {
  double requested = 0;
  double hits = 0;
  for (const model_group* each : all) {
    requested += static_cast<double>(each->group.requested);
    hits += static_cast<double>(each->group.hits);
  }
  return hits / requested;
}

struct opposite_needs {
  /// One that needs little, and one that needs much: the draws of both are skewed, over 400 and 12,000 blocks.
  opposite_needs() {
    small.draw = [this] { return static_cast<std::uint64_t>(std::pow(uniform(lot), 3) * 400); };
    large.draw = [this] { return 1'000'000 + static_cast<std::uint64_t>(std::pow(uniform(lot), 3) * 12'000); };
  }
  std::mt19937_64 lot{7};
  std::uniform_real_distribution<double> uniform{0, 1};
  model_group small{.group = group_of("small", 3'000), .draw = {}};
  model_group large{.group = group_of("large", 1'000), .draw = {}};
};

/// The same group at each decision, whose hits are as given.
quota_group fixed_group(std::string name, std::uint64_t hits, double slope, double error) {
  quota_group group = group_of(std::move(name), 1'000);
  group.requested = 1'000;
  group.hits = hits;
  group.members = {{.share = 1,
                    .tokens = 1'000,
                    .points = {{.bytes = 1, .hit_ratio = 0.1, .error = error},
                               {.bytes = 8'000.0 * block_bytes, .hit_ratio = 0.1 + slope, .error = error}}}};
  return group;
}

/// When a load turns to the other group: `age` intervals after the last time, with this quota of the group in need.
using turn_rule = std::function<bool(int age, std::uint64_t quota)>;

turn_rule turn_every(int intervals) {
  return [=](int age, std::uint64_t /*quota*/) { return age >= intervals; };
}

/// As soon as quota follows.
turn_rule turn_at_once() {
  return [](int /*age*/, std::uint64_t quota) { return quota >= 2'400 * block_bytes; };
}

/// When no more quota comes.
turn_rule turn_at_standstill() {
  return [last = std::uint64_t{0}, rests = 0](int age, std::uint64_t quota) mutable {
    rests = age > 1 && quota <= last ? rests + 1 : 0;
    last = quota;
    return rests >= 3 && quota > 2'000 * block_bytes;
  };
}

/// Two groups of one quota, of which now the one and now the other is in need.
struct turning_load {
  explicit turning_load(bool is_by_requests) : by_requests(is_by_requests) {
    for (std::size_t i = 0; i < 2; ++i) {
      all[i].group = group_of(i == 0 ? "one" : "other", 2'000);
      all[i].group.high = 3'900 * block_bytes;
      all[i].draw = [this, i] {
        const double blocks = by_requests ? 8'000 : needy == i ? 12'000 : 400;
        const auto block = i * 1'000'000 + static_cast<std::uint64_t>(std::pow(uniform(lot), 3) * blocks);
        equal_hits += equal[i].use(block, 2'000) ? 1 : 0;
        return block;
      };
    }
  }

  void run_interval(quota_moves& moves) {
    std::vector<quota_group> groups;
    for (std::size_t i = 0; i < 2; ++i) {
      const int requests = !by_requests ? 1'000 : needy == i ? 1'800 : 200;
      average[i] += (requests - average[i]) / 10;
      all[i].serve(requests);
      all[i].group.members[0].tokens = average[i];
      groups.push_back(all[i].group);
    }
    const auto move = moves.decide(groups);
    if (!move) return;
    for (model_group& each : all) {
      if (each.group.name == move->giver) each.group.quota -= move->bytes;
      if (each.group.name == move->taker) each.group.quota += move->bytes;
    }
  }

  /// The share of tokens that moves have cost over so many intervals.
  double cost_of(const turn_rule& rule, int intervals) {
    quota_moves moves;
    for (int i = 0, age = 1; i < intervals; ++i, ++age) {
      run_interval(moves);
      if (!rule(age, all[needy].group.quota)) continue;
      needy = 1 - needy;
      age = 0;
    }
    const auto hits = static_cast<double>(all[0].all_hits + all[1].all_hits);
    return (equal_hits - hits) / static_cast<double>(all[0].all_requested + all[1].all_requested);
  }

  bool by_requests;
  std::size_t needy = 0;
  std::mt19937_64 lot{7};
  std::uniform_real_distribution<double> uniform{0, 1};
  std::array<model_group, 2> all{};
  std::array<model_cache, 2> equal{};  ///< with equal quotas
  std::array<double, 2> average{1'000, 1'000};
  double equal_hits = 0;
};

void apply(const quota_move& move, std::vector<quota_group>& groups) {
  for (quota_group& each : groups) {
    if (each.name == move.giver) each.quota -= move.bytes;
    if (each.name == move.taker) each.quota += move.bytes;
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(quota_moves_tests)

BOOST_AUTO_TEST_CASE(two_groups_of_opposite_need_end_within_a_point_of_the_best_split) {
  opposite_needs test;
  quota_moves moves;
  const std::array all{&test.small, &test.large};
  for (int i = 0; i < 150; ++i) {
    const std::uint64_t before = test.small.group.quota;
    const auto move = run_interval(moves, all, 2'000);
    if (move && !move->is_undone) BOOST_TEST(move->bytes <= std::max(before, test.large.group.quota) / 20);
    BOOST_TEST(test.small.group.quota + test.large.group.quota == 4'000 * block_bytes);
  }
  double best = 0;
  for (std::uint64_t small = 100; small <= 3'900; small += 100) {
    opposite_needs fixed;
    fixed.small.group.quota = small * block_bytes;
    fixed.large.group.quota = (4'000 - small) * block_bytes;
    const std::array same{&fixed.small, &fixed.large};
    for (model_group* each : same) each->serve(30'000);
    for (model_group* each : same) each->serve(20'000);
    best = std::max(best, share_of_hits(same));
  }
  for (model_group* each : all) each->serve(20'000);
  BOOST_TEST(share_of_hits(all) > best - 0.01);
  BOOST_TEST(test.large.group.quota > 2'500 * block_bytes);
}

BOOST_AUTO_TEST_CASE(groups_of_equal_need_keep_what_they_have) {
  opposite_needs test;
  test.small.draw = [&] { return static_cast<std::uint64_t>(std::pow(test.uniform(test.lot), 3) * 12'000); };
  test.small.group.quota = test.large.group.quota = 2'000 * block_bytes;
  quota_moves moves;
  for (int i = 0; i < 60; ++i) run_interval(moves, {&test.small, &test.large}, 2'000);
  const auto apart =
      std::abs(static_cast<double>(test.small.group.quota) - static_cast<double>(test.large.group.quota));
  BOOST_TEST(apart < 1'000.0 * block_bytes);
}

BOOST_AUTO_TEST_CASE(nothing_moves_before_ten_intervals_with_requests_or_for_a_gain_below_three_errors) {
  quota_moves moves;
  const std::vector groups{fixed_group("flat", 500, 0.0, 0.0), fixed_group("steep", 500, 0.5, 0.0)};
  std::vector<quota_group> idle = groups;
  for (quota_group& each : idle) each.requested = each.hits = 0;
  for (int i = 0; i < 20; ++i) BOOST_TEST(!moves.decide(idle));
  for (int i = 0; i < 9; ++i) BOOST_TEST(!moves.decide(groups));
  const auto move = moves.decide(groups);
  BOOST_REQUIRE(move);
  BOOST_TEST(move->giver == "flat");
  BOOST_TEST(move->taker == "steep");
  BOOST_TEST(move->bytes == 50 * block_bytes);
  quota_moves unsure;
  const std::vector vague{fixed_group("flat", 500, 0.0, 0.1), fixed_group("steep", 500, 0.5, 0.1)};
  for (int i = 0; i < 20; ++i) BOOST_TEST(!unsure.decide(vague));
}

BOOST_AUTO_TEST_CASE(steps_that_cost_hits_go_back_and_rest_for_sixty_intervals) {
  quota_moves moves;
  std::vector groups{fixed_group("flat", 500, 0.0, 0.0), fixed_group("steep", 500, 0.5, 0.0)};
  for (int i = 0; i < 9; ++i) BOOST_TEST(!moves.decide(groups));
  std::optional<quota_move> back;
  for (int i = 0; i <= 10 && !back; ++i) {
    const auto move = moves.decide(groups);
    BOOST_REQUIRE(move);
    apply(*move, groups);
    if (move->is_undone) back = move;
    for (quota_group& each : groups) each.hits = 490;  // a point fewer, whatever the curves promise
  }
  BOOST_REQUIRE(back);
  BOOST_TEST(back->giver == "steep");
  BOOST_TEST(back->baseline == 0.5);
  BOOST_TEST(std::abs(back->measured - 0.49) < 1e-9);
  for (const quota_group& each : groups) BOOST_TEST(each.quota == 1'000 * block_bytes);
  for (std::size_t i = 1; i < quota_moves::rest_intervals; ++i) BOOST_TEST(!moves.decide(groups));
  BOOST_TEST(moves.decide(groups).has_value());
}

BOOST_AUTO_TEST_CASE(a_load_that_turns_at_the_worst_moments_costs_at_most_a_point_against_equal_quotas) {
  const std::array rules{turn_every(1),  turn_every(20), turn_every(40),
                         turn_every(75), turn_at_once(), turn_at_standstill()};
  for (const bool by_requests : {false, true}) {
    for (std::size_t i = 0; i < rules.size(); ++i) {
      BOOST_TEST_CONTEXT((by_requests ? "requests, rule " : "blocks, rule ") << i) {
        BOOST_TEST(turning_load(by_requests).cost_of(rules[i], 240) <= 0.01);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(each_further_excursion_that_costs_hits_is_followed_by_a_rest_twice_as_long) {
  quota_moves moves;
  std::vector groups{fixed_group("flat", 500, 0.0, 0.0), fixed_group("steep", 500, 0.5, 0.0)};
  std::vector<int> rests;
  for (int i = 0, rest = 0; i < 400; ++i) {
    const auto move = moves.decide(groups);
    if (move) apply(*move, groups);
    const bool is_home = groups[0].quota == 1'000 * block_bytes;
    for (quota_group& each : groups) each.hits = is_home ? 500 : 400;
    if (move && !move->is_undone && rest > 0) rests.push_back(std::exchange(rest, 0));
    if (!move) ++rest;
    if (move && move->is_undone) BOOST_TEST(is_home);
  }
  BOOST_TEST(rests == (std::vector{9, 59, 119}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_group_that_comes_or_is_away_for_a_while_is_no_new_home) {
  quota_moves moves;
  std::vector groups{fixed_group("flat", 500, 0.0, 0.0), fixed_group("steep", 500, 0.5, 0.0),
                     fixed_group("idle", 500, 0.0, 0.0)};
  for (int i = 0; i < 13; ++i) {
    if (const auto move = moves.decide(groups)) apply(*move, groups);
  }
  const std::uint64_t quota = groups[1].quota;
  BOOST_TEST(quota > 1'000 * block_bytes);
  std::vector some(groups.begin(), groups.begin() + 2);
  if (const auto move = moves.decide(some)) apply(*move, groups);
  for (int i = 0; i < 20 && groups[1].quota != 1'000 * block_bytes; ++i) {
    for (quota_group& each : groups) each.hits = 300;
    if (const auto move = moves.decide(groups)) apply(*move, groups);
  }
  for (const quota_group& each : groups) BOOST_TEST(each.quota == 1'000 * block_bytes);
}

BOOST_AUTO_TEST_CASE(quotas_stay_within_their_limits) {
  quota_moves moves;
  std::vector groups{fixed_group("flat", 500, 0.0, 0.0), fixed_group("steep", 500, 0.9, 0.0)};
  groups[0].low = 300 * block_bytes;
  groups[1].high = 1'200 * block_bytes;
  for (int i = 0; i < 60; ++i) {
    if (const auto move = moves.decide(groups)) apply(*move, groups);
  }
  BOOST_TEST(groups[1].quota <= 1'200 * block_bytes);
  BOOST_TEST(groups[1].quota > 1'100 * block_bytes);
  BOOST_TEST(groups[0].quota + groups[1].quota == 2'000 * block_bytes);
}

BOOST_AUTO_TEST_CASE(below_its_curve_a_group_finds_in_proportion_to_its_memory_and_without_one_it_stays) {
  quota_group group = fixed_group("small", 500, 0.0, 0.0);
  group.members[0].points[0] = {.bytes = 2'000.0 * block_bytes, .hit_ratio = 0.5, .error = 0.0};
  BOOST_TEST(change_of(group, 1'500.0 * block_bytes)->tokens == 125.0);
  quota_moves moves;
  std::vector groups{fixed_group("flat", 500, 0.0, 0.0), group};
  for (int i = 0; i < 60; ++i) {
    if (const auto move = moves.decide(groups)) apply(*move, groups);
  }
  BOOST_TEST(groups[1].quota > 1'500 * block_bytes);
  groups[1].members[0].points.clear();
  BOOST_TEST(!change_of(groups[1], 1'000.0 * block_bytes));
  quota_moves without_curve;
  for (int i = 0; i < 20; ++i) BOOST_TEST(!without_curve.decide(groups));
}

BOOST_AUTO_TEST_CASE(a_gain_of_less_than_three_thousandths_of_all_tokens_is_none_however_sure) {
  quota_moves moves;
  const std::vector groups{fixed_group("flat", 500, 0.0, 0.0), fixed_group("nearly", 500, 0.006, 0.0)};
  for (int i = 0; i < 20; ++i) BOOST_TEST(!moves.decide(groups));
}

BOOST_AUTO_TEST_CASE(after_quotas_that_another_hand_has_set_the_measurements_begin_anew) {
  quota_moves moves;
  std::vector groups{fixed_group("flat", 500, 0.0, 0.0), fixed_group("steep", 500, 0.5, 0.0)};
  for (int i = 0; i < 10; ++i) (void)moves.decide(groups);  // the first move is not carried out
  for (quota_group& each : groups) each.hits = 400;
  for (int i = 0; i < 10; ++i) BOOST_TEST(!moves.decide(groups));
  BOOST_TEST(moves.decide(groups).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
