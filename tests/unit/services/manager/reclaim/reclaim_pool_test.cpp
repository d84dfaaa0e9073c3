// The order in which records go, and which of them are in it.
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <memory>
#include <vector>

#include "services/manager/reclaim/reclaim_pool.hpp"

namespace cenote::manager {

namespace {

std::unique_ptr<reclaim_pool> lru_pool() {
  return std::move(*reclaim_pool::make("lru"));
}

/// Takes all that are there, the first to go first.
std::vector<std::uint32_t> emptied(reclaim_pool& pool) {
  std::vector<std::uint32_t> order;
  while (const auto record = pool.victim()) {
    order.push_back(*record);
    pool.forget(*record);
  }
  return order;
}

std::unique_ptr<reclaim_pool> pool_with(const std::vector<std::uint32_t>& records) {
  auto pool = lru_pool();
  for (const std::uint32_t record : records) pool->insert(record, record, 1);
  return pool;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(order_of_records)

BOOST_AUTO_TEST_CASE(a_policy_that_is_not_there_is_refused) {
  const auto made = reclaim_pool::make("no such policy");
  BOOST_REQUIRE(!made);
  BOOST_TEST((made.error().code() == error_code::invalid_config));
}

BOOST_AUTO_TEST_CASE(the_oldest_goes_first_and_a_use_makes_a_record_younger) {
  auto pool = pool_with({1, 2, 3});
  pool->touch(1, 2);
  BOOST_TEST(emptied(*pool) == (std::vector<std::uint32_t>{2, 3, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_record_that_is_inserted_twice_is_there_once_and_used) {
  auto pool = pool_with({1, 2, 1});
  BOOST_TEST(pool->size() == 2U);
  BOOST_TEST(emptied(*pool) == (std::vector<std::uint32_t>{2, 1}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(records_that_are_not_there_do_not_matter) {
  auto pool = pool_with({1});
  for (const std::uint32_t record : {0U, 2U, 4'095U, 4'096U, 1'000'000U, 0xffff'ffffU}) {
    BOOST_TEST(!pool->has(record));
    pool->touch(record, 2);
    pool->forget(record);
    pool->evict(record, record, 2);
  }
  BOOST_TEST(pool->size() == 1U);
  BOOST_TEST(pool->has(1));
}

BOOST_AUTO_TEST_CASE(a_record_leaves_once_by_either_way) {
  auto pool = pool_with({1, 2, 3});
  pool->forget(2);
  pool->forget(2);
  pool->evict(1, 1, 2);
  pool->evict(1, 1, 2);
  BOOST_TEST(!pool->has(1));
  BOOST_TEST(!pool->has(2));
  BOOST_TEST(pool->size() == 1U);
  pool->insert(2, 2, 3);
  BOOST_TEST(emptied(*pool) == (std::vector<std::uint32_t>{3, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(victims_that_come_back_in_reverse_order_stand_as_before) {
  auto pool = pool_with({1, 2, 3, 4});
  std::vector<std::uint32_t> passed;
  for (int i = 0; i < 3; ++i) {
    passed.push_back(pool->victim().value());
    pool->forget(passed.back());
  }
  for (auto record = passed.rbegin(); record != passed.rend(); ++record) pool->put_back(*record, 1, 1);
  BOOST_TEST(pool->size() == 4U);
  BOOST_TEST(emptied(*pool) == (std::vector<std::uint32_t>{1, 2, 3, 4}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(a_record_that_is_there_does_not_come_back) {
  auto pool = pool_with({1, 2});
  pool->put_back(2, 1, 1);
  pool->put_back(9'000, 1, 1);  // never seen
  BOOST_TEST(pool->size() == 2U);
  BOOST_TEST(emptied(*pool) == (std::vector<std::uint32_t>{1, 2}), boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(numbers_of_records_may_lie_far_apart) {
  auto pool = pool_with({0, 4'095, 4'096, 200'000});
  BOOST_TEST(pool->size() == 4U);
  BOOST_TEST(emptied(*pool) == (std::vector<std::uint32_t>{0, 4'095, 4'096, 200'000}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
