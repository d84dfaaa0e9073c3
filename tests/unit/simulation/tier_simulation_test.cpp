#include "simulation/tier_simulation.hpp"

#include <boost/test/unit_test.hpp>
#include <numeric>
#include <random>

namespace cenote::simulation {

namespace {

/// Sessions that grow, restart and share beginnings.
trace random_trace(unsigned seed) {
  std::mt19937_64 random(seed);
  trace of;
  std::vector<std::vector<std::uint64_t>> sessions(60);
  std::uint64_t next = 100;
  for (std::uint64_t i = 0; i < 2'000; ++i) {
    auto& session = sessions[random() % sessions.size()];
    if (session.empty() || random() % 8 == 0) session = {random() % 5};
    for (std::uint64_t more = random() % 6; more > 0; --more) session.push_back(next++);
    of.add(i * 250, session.size() * 512 - random() % 512, session);
  }
  return of;
}

tier_stack over_one(std::uint32_t upper, lower_tier lower, std::string policy = "lru") {
  return {.upper_policy = std::move(policy), .upper_capacity = upper, .lower = {std::move(lower)}};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(tier_simulation)

BOOST_AUTO_TEST_CASE(an_exclusive_lru_over_lru_is_one_lru_of_both_capacities) {
  for (unsigned seed = 1; seed <= 3; ++seed) {
    const trace of = random_trace(seed);
    for (const auto order : {replay_order::forward, replay_order::reverse}) {
      for (const auto& [upper, lower] : {std::pair(1U, 300U), {20U, 100U}, {100U, 20U}, {400U, 400U}}) {
        const auto both = simulate(of, over_one(upper, {.capacity = lower, .keep_copy = false}), order);
        const auto one = simulate(of, "lru", upper + lower, order);
        BOOST_TEST(both->all.stream_hits == one->stream_hits);
        BOOST_TEST(both->all.prefix_hits == one->prefix_hits);
        BOOST_TEST(both->all.prefix_tokens == one->prefix_tokens);
        BOOST_TEST(both->lower[0].evictions == one->evictions);
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(each_ingest_writes_what_it_says) {
  trace of;
  const std::vector<std::uint64_t> a{1};
  const std::vector<std::uint64_t> b{2};
  const std::vector<std::uint64_t> c{3};
  for (const auto& ids : {a, b, b, c}) of.add(0, 512, ids);  // with one block above, a, b and c follow each other
  tier_stack how = over_one(1, {.capacity = 10});
  how.lower[0].ingest = ingest::all;
  BOOST_TEST(simulate(of, how, replay_order::forward)->lower[0].written == 3U);
  how.lower[0].ingest = ingest::hot;
  BOOST_TEST(simulate(of, how, replay_order::forward)->lower[0].written == 1U);
  how.lower[0].ingest = ingest::evicted;
  BOOST_TEST(simulate(of, how, replay_order::forward)->lower[0].written == 2U);
}

BOOST_AUTO_TEST_CASE(a_kept_copy_is_not_written_again) {
  trace of;
  const std::vector<std::uint64_t> a{1};
  const std::vector<std::uint64_t> b{2};
  for (int i = 0; i < 10; ++i) of.add(0, 512, i % 2 == 0 ? a : b);
  tier_stack how = over_one(1, {.capacity = 10});
  const auto kept = simulate(of, how, replay_order::forward);
  BOOST_TEST(kept->lower[0].written == 2U);
  BOOST_TEST(kept->lower[0].promoted == 8U);
  how.lower[0].keep_copy = false;
  BOOST_TEST(simulate(of, how, replay_order::forward)->lower[0].written == 9U);
  how.lower[0].ingest = ingest::all;
  BOOST_TEST(!simulate(of, how, replay_order::forward).has_value());
}

BOOST_AUTO_TEST_CASE(a_block_stored_again_behind_the_prefix_is_no_use_of_the_copy_below_until_it_goes_down) {
  trace of;
  const std::vector<std::vector<std::uint64_t>> chains{{1, 2}, {3, 4}, {5}, {6}, {7, 1}, {8, 9}};
  for (const auto& ids : chains) of.add(0, ids.size() * 512, ids);
  // Below are 1, 4 and 3, the oldest first, when 7 and 1 are stored: 5 takes the place of 1, which later is written
  // again.
  const auto again = simulate(of, over_one(2, {.capacity = 3}), replay_order::reverse);
  BOOST_TEST(again->all.prefix_hits == 0U);
  BOOST_TEST(again->lower[0].written == 8U);
  // With room for one more below, 1 is there when it leaves: it is not written, and 4 is the oldest.
  of.add(0, 512, std::vector<std::uint64_t>{4});
  of.add(0, 512, std::vector<std::uint64_t>{1});
  const auto used = simulate(of, over_one(2, {.capacity = 5}), replay_order::reverse);
  BOOST_TEST(used->lower[0].written == 9U);
  BOOST_TEST(used->all.prefix_hits == 1U);
}

BOOST_AUTO_TEST_CASE(what_a_request_pushes_out_by_itself_is_not_promoted) {
  // Requests of 40 blocks through 10: most of each is evicted within its own request, and nothing is ever asked for
  // again.
  trace of;
  for (std::uint64_t i = 0; i < 50; ++i) {
    std::vector<std::uint64_t> ids(40);
    std::iota(ids.begin(), ids.end(), i * 100);
    of.add(i * 1'000, 40 * 512, ids);
  }
  for (const std::string name : {"lru", "tblru", "auto"}) {
    const tier_stack how = over_one(10, {.capacity = 10'000}, name);
    BOOST_TEST(simulate(of, how, replay_order::reverse)->lower[0].promoted == 0U, name);
  }
}

BOOST_AUTO_TEST_CASE(a_block_that_came_up_is_used_by_its_request_as_in_a_node) {
  trace of;
  for (const std::uint64_t id : {1U, 2U, 3U, 1U, 4U, 5U, 1U}) of.add(0, 512, std::vector<std::uint64_t>{id});
  const auto sums = simulate(of, over_one(2, {.capacity = 10}, "lfu"), replay_order::reverse);
  BOOST_TEST(sums->lower[0].promoted == 1U);
  BOOST_TEST(sums->upper_hits == 1U);  // used twice, 1 outlasts 4 and 5
  BOOST_TEST(sums->upper_tokens == 512U);
  BOOST_TEST(sums->all.prefix_tokens == 1'024U);
}

BOOST_AUTO_TEST_CASE(blocks_that_came_up_do_not_push_each_other_out) {
  trace of;
  const std::vector<std::uint64_t> chain{10, 11, 12};
  of.add(0, 3 * 512, chain);
  for (const std::uint64_t id : {1U, 1U, 2U, 2U, 3U, 3U, 4U, 4U}) of.add(0, 512, std::vector<std::uint64_t>{id});
  of.add(0, 3 * 512, chain);  // all of it comes up, among blocks that were used more often
  of.add(0, 3 * 512, chain);
  const auto sums = simulate(of, over_one(4, {.capacity = 20}, "lfu"), replay_order::reverse);
  BOOST_TEST(sums->lower[0].promoted == 3U);
  BOOST_TEST(sums->upper_hits == 4U + 3U);
  BOOST_TEST(sums->upper_tokens == 512U * (4 + 3));
}

BOOST_AUTO_TEST_CASE(no_more_is_promoted_than_leading_blocks_are_hits_below) {
  for (const std::string name : {"lru", "arc", "tblru", "auto"}) {
    const trace of = random_trace(4);
    const tier_stack how = over_one(30, {.capacity = 400}, name);
    const auto sums = simulate(of, how, replay_order::reverse);
    BOOST_TEST(sums->lower[0].promoted > 0U, name);
    BOOST_TEST(sums->lower[0].promoted <= sums->all.prefix_hits, name);
  }
}

BOOST_AUTO_TEST_CASE(three_exclusive_lrus_are_one_lru_of_all_capacities) {
  const trace of = random_trace(4);
  const lower_tier disk{.capacity = 100, .keep_copy = false};
  const lower_tier server{.capacity = 300, .keep_copy = false};
  const auto three = simulate(of, {.upper_capacity = 20, .lower = {disk, server}}, replay_order::reverse);
  const auto one = simulate(of, "lru", 420, replay_order::reverse);
  BOOST_TEST(three->all.prefix_tokens == one->prefix_tokens);
  BOOST_TEST(three->all.stream_hits == one->stream_hits);
  BOOST_TEST(three->lower[1].evictions == one->evictions);
}

BOOST_AUTO_TEST_CASE(each_hit_token_is_of_the_first_tier_that_has_it) {
  const trace of = random_trace(5);
  const tier_stack how{.upper_capacity = 30,
                       .lower = {{.capacity = 200, .ingest = ingest::all}, {.capacity = 2'000, .ingest = ingest::all}}};
  const auto sums = simulate(of, how, replay_order::reverse);
  BOOST_TEST(sums->upper_tokens > 0U);
  BOOST_TEST(sums->lower[0].prefix_tokens > 0U);
  BOOST_TEST(sums->lower[1].prefix_tokens > 0U);
  BOOST_TEST(sums->upper_tokens + sums->lower[0].prefix_tokens + sums->lower[1].prefix_tokens ==
             sums->all.prefix_tokens);
  const auto without = simulate(of, over_one(30, {.capacity = 200, .ingest = ingest::all}), replay_order::reverse);
  BOOST_TEST(without->upper_tokens + without->lower[0].prefix_tokens == without->all.prefix_tokens);
  BOOST_TEST(sums->all.prefix_tokens > without->all.prefix_tokens);
}

BOOST_AUTO_TEST_CASE(what_leaves_goes_to_the_tier_that_takes_it_unless_a_nearer_one_has_it) {
  const trace of = random_trace(6);
  const lower_tier disk{.capacity = 200};
  const lower_tier server{.capacity = 10'000, .ingest = ingest::all};
  const auto near = simulate(of, {.upper_capacity = 30, .lower = {disk, server}}, replay_order::reverse);
  BOOST_TEST(near->lower[0].written > near->all.blocks - near->all.stream_hits);  // what comes from the server, too
  BOOST_TEST(near->lower[0].prefix_tokens > 0U);
  BOOST_TEST(near->lower[1].written == near->all.blocks - near->all.stream_hits);
  const auto behind = simulate(of, {.upper_capacity = 30, .lower = {server, disk}}, replay_order::reverse);
  BOOST_TEST(behind->lower[1].written == 0U);
}

BOOST_AUTO_TEST_CASE(a_tier_with_none_gets_nothing) {
  const tier_stack how{.upper_capacity = 30, .lower = {{.capacity = 200, .ingest = ingest::none}, {.capacity = 200}}};
  const auto sums = simulate(random_trace(7), how, replay_order::reverse);
  BOOST_TEST(sums->lower[0].written == 0U);
  BOOST_TEST(sums->lower[1].written > 0U);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(tiers_below_a_device)

namespace {

/// A device of `gpu` blocks over DRAM and a disk, as a node has them.
tier_stack device_over(std::uint32_t gpu, std::uint32_t dram, std::uint32_t nvme) {
  return {.upper_capacity = gpu,
          .lower = {{.capacity = dram, .ingest = ingest::all}, {.capacity = nvme}},
          .upper_is_device = true};
}

trace one_by_one(const std::vector<std::uint64_t>& ids) {
  trace of;
  for (const std::uint64_t id : ids) of.add(0, 512, std::vector<std::uint64_t>{id});
  return of;
}

}  // namespace

BOOST_AUTO_TEST_CASE(each_hit_token_of_four_tiers_is_of_the_first_that_has_it) {
  const trace of = random_trace(8);
  tier_stack how = device_over(30, 100, 300);
  how.lower.push_back({.capacity = 20'000, .ingest = ingest::all});
  for (const std::string policy : {"lru", "tblru", "auto"}) {
    how.upper_policy = policy;
    how.lower[0].policy = policy;
    const auto sums = simulate(of, how, replay_order::reverse);
    BOOST_REQUIRE(sums);
    std::uint64_t all = sums->upper_tokens;
    BOOST_TEST(sums->upper_tokens > 0U, policy);
    for (const lower_sums& each : sums->lower) {
      BOOST_TEST(each.prefix_tokens > 0U, policy);
      all += each.prefix_tokens;
    }
    BOOST_TEST(all == sums->all.prefix_tokens, policy);
  }
}

BOOST_AUTO_TEST_CASE(what_comes_up_from_a_disk_lies_in_dram_then) {
  tier_stack how = device_over(1, 1, 10);
  const trace of = one_by_one({1, 2, 1});
  const auto sums = simulate(of, how, replay_order::reverse);
  BOOST_TEST(sums->lower[0].written == 4U);  // 1, 2, 1 again, and 2 as it leaves the device
  BOOST_TEST(sums->lower[1].promoted == 1U);
  how.upper_is_device = false;
  BOOST_TEST(simulate(of, how, replay_order::reverse)->lower[0].written == 2U);
}

BOOST_AUTO_TEST_CASE(what_dram_evicts_goes_to_the_disk_though_the_device_has_it) {
  tier_stack how = device_over(10, 1, 10);
  const trace of = one_by_one({1, 2, 3});
  BOOST_TEST(simulate(of, how, replay_order::reverse)->lower[1].written == 2U);
  how.upper_is_device = false;
  BOOST_TEST(simulate(of, how, replay_order::reverse)->lower[1].written == 0U);
}

BOOST_AUTO_TEST_CASE(what_a_device_evicts_that_dram_has_not_is_lost) {
  tier_stack how = device_over(1, 10, 10);
  const trace of = one_by_one({1, 2, 1});
  BOOST_TEST(simulate(of, how, replay_order::reverse)->lower[0].promoted == 1U);
  how.lower[0].ingest = ingest::none;
  const auto sums = simulate(of, how, replay_order::reverse);
  BOOST_TEST(sums->all.prefix_hits == 0U);
  BOOST_TEST(sums->lower[1].written == 0U);
  how.lower[0].ingest = ingest::evicted;
  BOOST_TEST(simulate(of, how, replay_order::reverse)->lower[0].promoted == 1U);
}

BOOST_AUTO_TEST_CASE(a_device_with_room_for_all_has_all_hits) {
  const trace of = random_trace(9);
  const auto sums = simulate(of, device_over(of.distinct(), 100, 100), replay_order::reverse);
  BOOST_TEST(sums->upper_tokens == sums->all.prefix_tokens);
  BOOST_TEST(sums->lower[0].promoted == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
