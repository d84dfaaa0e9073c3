#include "actors/live_curves.hpp"

#include "core/key_sample.hpp"
#include "core/units.hpp"
#include "tests/actors/actor_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

/// Asks for `count` blocks in turn, again and again, in requests of ten.
void ask_in_turn(live_curve& curve, std::uint64_t count, std::uint64_t rounds) {
  for (std::uint64_t i = 0; i < rounds * count; i += 10) {
    std::vector<std::uint64_t> chain;
    for (std::uint64_t j = 0; j < 10; ++j) chain.push_back(mixed_bits((i + j) % count));
    curve.add(chain);
  }
}

blocks::curve_status status_of(const live_curve& curve, std::uint64_t capacity) {
  blocks::curve_status status;
  status.capacity = capacity;
  curve.describe(status);
  return status;
}

/// Of a tier with instances 1 to `count`, all of which are watched.
blocks::store_status watched_tier(std::uint32_t count) {
  blocks::store_status tier;
  for (std::uint32_t i = 1; i <= count; ++i) {
    blocks::curve_status curve;
    curve.instance = i;
    curve.capacity = 8;
    tier.instances.emplace_back().curve = curve;
  }
  return tier;
}

blocks::watched_request request_of(std::uint32_t instance, std::vector<std::uint64_t> ids) {
  return {.instance = instance, .room = 8, .ids = std::move(ids)};
}

watched_batch sized_batch(std::size_t requests, std::uint64_t blocks) {
  return {.requests = std::vector<blocks::watched_request>(requests), .blocks = blocks};
}

/// A tier whose requests come to `passed`, and to the curves once there are some.
struct watched_fixture : actor_fixture {
  watched_fixture()
      : actor_fixture(below::nothing, [this](std::vector<blocks::watched_request> requests) {
          passed.push_back(requests);
          if (teller) teller(std::move(requests));
        }) {}

  /// Stores a chain of one block in a request of its own.
  void store_block(const session_resources& client, std::uint64_t key) {
    auto work = std::make_shared<blocks::batch>();
    work->session = client.number;
    work->entries = {commit_of(client, static_cast<std::uint32_t>(key), key)};
    BOOST_REQUIRE(ask<batch_ptr>(dram(), run_atom_v, work));
  }
  std::shared_ptr<session_resources> make_client_with_grants() {
    auto client = make_client(1);
    provide_memory();
    auto work = std::make_shared<blocks::batch>();
    work->session = client->number;
    work->entries = {entry_of(memory::operation::grant, 1'000, 8)};
    caf::anon_send(dram(), run_atom_v, batch_ptr(work));
    run();
    provide_memory();
    return client;
  }

  std::vector<std::vector<blocks::watched_request>> passed;
  dram_tier::tell_watched teller;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(live_curves_tests)

BOOST_AUTO_TEST_CASE(a_curve_has_three_points_for_each_power_of_two_around_the_present_capacity) {
  live_curve curve(64);
  ask_in_turn(curve, 500, 10);
  const auto status = status_of(curve, 64);
  BOOST_TEST(status.requests == 500U);
  BOOST_REQUIRE(status.points.size() == 25U);
  BOOST_TEST(status.points.front().capacity == 4U);
  BOOST_TEST(status.points[12].capacity == 64U);
  BOOST_TEST(status.points.back().capacity == 1'024U);
  // In turn, LRU has nothing of what is asked for until it has room for all.
  BOOST_TEST(status.points[12].miss_ratio > 0.99);
  BOOST_TEST(status.points.back().miss_ratio < 0.11);
}

BOOST_AUTO_TEST_CASE(of_a_large_capacity_points_from_about_a_quarter_to_four_times_are_given) {
  live_curve curve(40'000);
  ask_in_turn(curve, 300'000, 2);
  const auto status = status_of(curve, 40'000);
  BOOST_REQUIRE(!status.points.empty());
  BOOST_TEST(status.points.front().capacity < 14'000U);
  BOOST_TEST(status.points.back().capacity == 160'000U);
  for (const auto& each : status.points) BOOST_TEST(each.miss_ratio > 1 - 4 * each.error);
}

BOOST_AUTO_TEST_CASE(a_curve_has_the_smallest_capacities_for_shares_of_the_hits_within_reach) {
  live_curve curve(1'024);
  for (std::uint64_t i = 0; i < 8; ++i) ask_in_turn(curve, 100, 10);  // all of it hits, or nothing
  for (std::uint64_t i = 0; i < 2; ++i) ask_in_turn(curve, 1'000, 10);
  const auto status = status_of(curve, 1'024);
  BOOST_REQUIRE(status.shares.size() == 7U);
  BOOST_TEST(status.shares[0].share == 0.6);
  BOOST_TEST(status.shares[6].share == 0.995);
  for (std::size_t i = 1; i < status.shares.size(); ++i) {
    BOOST_TEST(status.shares[i].capacity >= status.shares[i - 1].capacity);
  }
  BOOST_TEST(status.shares[6].capacity <= 1'001U);
  BOOST_TEST(status.shares[6].capacity >= 990U);
}

BOOST_AUTO_TEST_CASE(more_of_a_tier_gains_what_the_curve_has_behind_it) {
  live_curve curve(1'024);
  ask_in_turn(curve, 1'000, 20);
  blocks::curve_status status;
  status.block_bytes = GiB / 100;
  status.capacity = 900;  // a GiB is 100 blocks: then everything is there
  curve.describe(status);
  BOOST_REQUIRE(status.gains.size() == 1U);
  BOOST_TEST(status.gains[0].tier == "dram");
  BOOST_TEST(status.gains[0].hit_ratio > 0.9);
  BOOST_TEST(status.gains[0].hit_ratio <= 1.0);

  status = {};
  status.block_bytes = GiB / 100;
  status.capacity = 400;
  curve.describe(status, 5 * GiB);
  BOOST_REQUIRE(status.gains.size() == 2U);
  BOOST_TEST(status.gains[0].hit_ratio < 0.01);
  BOOST_TEST(status.gains[1].tier == "nvme");
  BOOST_TEST(status.gains[1].hit_ratio > 0.9);

  status = {};
  status.block_bytes = GiB / 100;
  status.capacity = 400;
  curve.describe(status, 500 * GiB);  // beyond what is known
  BOOST_TEST(status.gains.size() == 1U);
}

BOOST_AUTO_TEST_CASE(without_room_or_requests_there_are_no_points) {
  live_curve curve(0);
  BOOST_TEST(status_of(curve, 100).points.empty());
  ask_in_turn(curve, 100, 1);
  BOOST_TEST(status_of(curve, 0).points.empty());
}

BOOST_AUTO_TEST_CASE(of_more_instances_than_there_may_be_the_one_that_was_asked_for_longest_ago_goes) {
  constexpr auto most = static_cast<std::uint32_t>(blocks::most_watched);
  live_curve_set curves;
  for (std::uint32_t i = 1; i <= most; ++i) curves.add(request_of(i, {i}));
  curves.add(request_of(1, {1}));
  curves.add(request_of(most + 1, {9}));
  BOOST_TEST(curves.size() == most);
  const auto all = curves.report(watched_tier(most + 1));
  BOOST_REQUIRE(all.size() == most + 1);
  BOOST_TEST(all[0].requests == 2U);
  BOOST_TEST(all[1].requests == 0U);
  BOOST_TEST(all[most].requests == 1U);
}

BOOST_AUTO_TEST_CASE(the_curve_of_an_instance_that_a_report_does_not_name_goes) {
  live_curve_set curves;
  curves.add(request_of(1, {1}));
  curves.add(request_of(2, {1}));
  BOOST_TEST(curves.report(watched_tier(1)).size() == 1U);
  BOOST_TEST(curves.size() == 1U);
}

BOOST_AUTO_TEST_CASE(what_would_wait_behind_too_many_blocks_is_dropped_and_counted_until_some_have_arrived) {
  watched_limit limit;
  const auto large = sized_batch(1, watched_limit::most_blocks);
  BOOST_TEST(limit.admit(sized_batch(2, 1)));
  BOOST_TEST(limit.admit(large));
  BOOST_TEST(!limit.admit(sized_batch(3, 1)));
  BOOST_TEST(limit.dropped() == 3U);
  limit.arrived(large);
  BOOST_TEST(limit.admit(sized_batch(4, 1)));
  BOOST_TEST(limit.dropped() == 3U);
}

BOOST_FIXTURE_TEST_CASE(the_actor_drops_what_comes_while_too_much_waits_and_says_how_much, actor_fixture) {
  const auto limit = std::make_shared<watched_limit>();
  const auto curves = system().spawn<live_curves>(limit);
  const auto teller = watched_teller(curves, limit);
  run();
  teller({request_of(1, std::vector<std::uint64_t>(watched_limit::most_blocks, 5))});
  teller({request_of(1, {6}), request_of(1, {7})});  // the actor has had no turn
  run();
  teller({request_of(1, {8})});
  const auto tier = std::make_shared<const dram_report>(dram_report{watched_tier(1), {}, 0});
  const auto report = ask<curves_report_ptr>(curves, report_atom_v, dram_report_ptr(tier));
  BOOST_REQUIRE(report);
  BOOST_TEST((*report)->figures.dropped == 2U);
  BOOST_REQUIRE((*report)->curves.size() == 1U);
  BOOST_TEST((*report)->curves[0].requests == 2U);
  caf::anon_send_exit(curves, caf::exit_reason::user_shutdown);
  run();
}

BOOST_FIXTURE_TEST_CASE(a_tier_passes_requests_on_together_with_its_tick, watched_fixture) {
  const auto client = make_client_with_grants();
  store_block(*client, 1);
  store_block(*client, 2);
  BOOST_TEST(passed.empty());
  caf::anon_send(dram(), tick_atom_v);
  run();
  BOOST_REQUIRE(passed.size() == 1U);
  BOOST_REQUIRE(passed[0].size() == 2U);
  BOOST_TEST((passed[0][0].ids == std::vector<std::uint64_t>{reduce_key(key_of(1).view(), 0).lo}));
  BOOST_TEST((passed[0][1].ids == std::vector<std::uint64_t>{reduce_key(key_of(2).view(), 0).lo}));
}

BOOST_FIXTURE_TEST_CASE(a_report_of_the_node_has_all_requests_that_were_answered_before_it, watched_fixture) {
  const auto limit = std::make_shared<watched_limit>();
  const auto curves = system().spawn<live_curves>(limit);
  teller = watched_teller(curves, limit);
  auto supervisor = system().spawn<node>(
      dram(), prefetch(), [](const std::string&) {}, std::vector<lower_tier>{}, cluster_actor(), consensus_actor(),
      curves);
  const auto client = make_client_with_grants();
  for (std::uint64_t key = 1; key <= 3; ++key) store_block(*client, key);
  const auto report = ask<report_ptr>(supervisor, report_atom_v);
  BOOST_REQUIRE(report);
  BOOST_REQUIRE((*report)->dram.instances.size() == 1U);
  const auto& curve = (*report)->dram.instances[0].curve;
  BOOST_REQUIRE(curve);
  BOOST_TEST(curve->requests == 3U);
  BOOST_TEST(curve->block_bytes == 4096U);
  BOOST_TEST(!curve->points.empty());
  teller = nullptr;
  caf::anon_send_exit(supervisor, caf::exit_reason::user_shutdown);
  supervisor = nullptr;
  run();
}

BOOST_FIXTURE_TEST_CASE(a_tier_that_watches_nothing_gathers_nothing, actor_fixture) {
  const auto report = ask<dram_report_ptr>(dram(), report_atom_v);
  BOOST_REQUIRE(report);
  BOOST_REQUIRE((*report)->store.instances.size() == 1U);
  BOOST_TEST(!(*report)->store.instances[0].curve);
}

BOOST_AUTO_TEST_SUITE_END()
