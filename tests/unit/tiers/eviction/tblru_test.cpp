#include "tiers/eviction/tblru.hpp"

#include <array>
#include <boost/test/unit_test.hpp>

#include "tiers/eviction/simulated_pool.hpp"

namespace cenote::eviction::tblru_test {

namespace {

constexpr std::uint32_t second = 10;

/// A pool of block numbers that are identities, too.
struct session_pool {
  block_links links;
  tblru policy{links};
  std::vector<std::uint64_t> identities;
  std::unique_ptr<simulated_pool> pool;
  std::uint32_t now = 0;

  explicit session_pool(std::uint32_t capacity) {
    links.cover(1000);
    for (std::uint64_t i = 0; i < 1000; ++i) identities.push_back(i);
    pool = std::make_unique<simulated_pool>(policy, capacity, identities);
  }
  [[nodiscard]] bool holds(std::uint32_t block) const { return pool->holds(block); }
  void refresh(std::uint32_t block) const { pool->refresh(block, now); }
  void use(std::uint32_t block) const {
    if (holds(block)) {
      pool->touch(block, now);
    } else {
      pool->insert(block, now);
    }
  }
  /// A request for blocks [first, last) behind those of `prefix`.
  void ask(std::vector<std::uint32_t> prefix, std::uint32_t first, std::uint32_t last, bool partial = false) {
    for (std::uint32_t block = first; block < last; ++block) prefix.push_back(block);
    const std::size_t hits = pool->begin_request(prefix, partial, now);
    use_request(*this, prefix, hits, false, policy.order());
  }
  /// One session goes on four times, which the policy wants to see before it refuses anything.
  void show_sessions() {
    std::vector<std::uint64_t> ids;
    for (std::uint64_t id = 900; id < 905; ++id) {
      ids.push_back(id);
      policy.begin_request({.ids = ids, .resident = {}}, now);
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(tblru_policy)

BOOST_AUTO_TEST_CASE(a_later_turn_outlives_younger_first_turns) {
  session_pool pool(10);
  pool.ask({}, 0, 3);
  pool.now = 60 * second;
  pool.ask({0, 1, 2}, 3, 5);  // the second turn of the same session
  pool.now = 70 * second;
  pool.ask({}, 100, 105);
  pool.now = 300 * second;
  pool.ask({}, 200, 205);
  for (const std::uint32_t block : {0U, 1U, 2U, 3U, 4U}) BOOST_TEST(pool.holds(block));
  for (const std::uint32_t block : {200U, 204U}) BOOST_TEST(pool.holds(block));
  for (const std::uint32_t block : {100U, 104U}) BOOST_TEST(!pool.holds(block));
}

BOOST_AUTO_TEST_CASE(a_parent_does_not_go_before_its_child) {
  session_pool pool(8);
  pool.ask({}, 0, 4);
  pool.now = 10 * second;
  pool.ask({0, 1}, 10, 12);
  pool.now = 500 * second;
  pool.ask({}, 20, 24);
  BOOST_TEST(pool.holds(0));
  BOOST_TEST(pool.holds(1));
  BOOST_TEST(!pool.holds(3));
  BOOST_TEST(!pool.holds(2));
}

BOOST_AUTO_TEST_CASE(a_first_turn_stops_at_young_victims) {
  session_pool pool(5);
  pool.show_sessions();
  pool.ask({}, 0, 5);
  pool.now = 20 * second;
  pool.ask({}, 10, 15);
  BOOST_TEST(!pool.holds(10));
  pool.now = 90 * second + 1;  // 0.75 of 120 s
  pool.ask({}, 20, 25);
  BOOST_TEST(pool.holds(24));
}

BOOST_AUTO_TEST_CASE(where_no_session_was_seen_to_go_on_the_latest_first_turn_stays_whole) {
  session_pool pool(5);
  pool.ask({}, 0, 5);
  pool.now = 20 * second;
  pool.ask({}, 10, 15);
  for (const std::uint32_t block : {10U, 14U}) BOOST_TEST(pool.holds(block));
  pool.show_sessions();
  pool.ask({}, 20, 25);
  BOOST_TEST(!pool.holds(20));
  for (std::uint32_t i = 0; i < 64; ++i) pool.ask({}, 100 + i, 101 + i);  // none of these goes on
  pool.ask({}, 20, 25);
  BOOST_TEST(pool.holds(24));
}

BOOST_AUTO_TEST_CASE(partial_blocks_stay_out_and_are_no_tips) {
  session_pool pool(10);
  pool.ask({}, 0, 3, true);
  BOOST_TEST(pool.holds(1));
  BOOST_TEST(!pool.holds(2));
  BOOST_TEST(pool.policy.ghosts() == 1U);
  pool.ask({}, 5, 6, true);
  BOOST_TEST(pool.policy.ghosts() == 1U);
}

BOOST_AUTO_TEST_CASE(tips_are_forgotten_in_time) {
  session_pool pool(100);
  for (std::uint32_t i = 0; i < 50; ++i) pool.ask({}, i, i + 1);
  BOOST_TEST(pool.policy.ghosts() == 50U);
  pool.now = 1'537 * second;
  pool.ask({}, 60, 61);
  BOOST_TEST(pool.policy.ghosts() == 1U);
}

BOOST_AUTO_TEST_CASE(a_document_before_different_questions_is_no_session_even_when_it_is_gone) {
  block_links links;
  tblru policy(links);
  std::uint32_t now = 0;
  const auto turn_of = [&](std::vector<std::uint64_t> ids) {
    now += 10 * second;
    return policy.begin_request({.ids = ids, .resident = {}}, now);
  };
  BOOST_TEST(turn_of({1, 2, 3}) == 1U);
  BOOST_TEST(turn_of({1, 2, 3, 10}) == 2U);
  BOOST_TEST(turn_of({1, 2, 3, 20}) == 1U);
  BOOST_TEST(turn_of({1, 2, 3}) == 2U);  // the same request once more
  BOOST_TEST(turn_of({1, 2, 3, 30}) == 1U);
  BOOST_TEST(turn_of({1, 2, 3, 10, 11}) == 3U);
}

BOOST_AUTO_TEST_CASE(of_a_sample_sessions_are_followed_by_all_blocks) {
  block_links links;
  tblru policy(links);
  const std::array<std::uint64_t, 4> first{1, 2, 3, 4};
  const std::array<std::uint64_t, 6> second_turn{1, 2, 3, 4, 5, 6};
  const auto sampled = [](std::span<const std::uint64_t> whole) {
    return request{.ids = whole.first(1), .resident = {}, .partial = false, .whole = whole};
  };
  BOOST_TEST(policy.begin_request(sampled(first), 0) == 1U);
  BOOST_TEST(policy.begin_request(sampled(second_turn), 10 * second) == 2U);
}

BOOST_AUTO_TEST_CASE(where_time_stands_still_requests_are_counted) {
  session_pool pool(5);
  const std::array<std::uint64_t, 1> other{999};
  const auto repeat = [&] { pool.policy.begin_request({.ids = other, .resident = {}}, 0); };
  pool.ask({}, 0, 5);
  for (int i = 0; i < 900; ++i) repeat();
  pool.ask({}, 10, 15);
  BOOST_TEST(!pool.holds(14));  // the victim is younger than 0.75 of 120 s, or of 1,200 requests
  for (int i = 0; i < 300; ++i) repeat();
  pool.ask({}, 20, 25);
  BOOST_TEST(pool.holds(24));
}

BOOST_AUTO_TEST_CASE(a_block_that_was_spared_has_its_own_class_again_once_it_is_used) {
  block_links links;
  links.cover(10);
  tblru policy(links);
  for (const std::uint32_t block : {0U, 1U, 2U}) policy.insert(block, block, block);
  policy.skip_victim(0, 5);
  BOOST_TEST(*policy.victim() == 1U);
  policy.touch(0, 10);
  policy.touch(1, 20);
  policy.touch(2, 30);
  BOOST_TEST(*policy.victim() == 0U);
}

BOOST_AUTO_TEST_CASE(requests_without_blocks_do_not_make_time_run) {
  session_pool pool(5);
  pool.ask({}, 0, 5);
  for (int i = 0; i < 20'000; ++i) pool.policy.begin_request({.ids = {}, .resident = {}}, 0);
  BOOST_TEST(pool.policy.ghosts() == 1U);  // the tip is not 1,536 s old
}

BOOST_AUTO_TEST_CASE(without_requests_it_is_an_lru) {
  block_links links;
  links.cover(10);
  tblru policy(links);
  for (std::uint32_t i = 0; i < 5; ++i) policy.insert(i, i, i);
  policy.touch(0, 10);
  BOOST_TEST(*policy.victim() == 1U);
  policy.forget(1);
  BOOST_TEST(*policy.victim() == 2U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction::tblru_test
