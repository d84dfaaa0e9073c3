#include "services/manager/service/call_counts.hpp"

#include <boost/test/unit_test.hpp>
#include <thread>
#include <vector>

namespace cenote::manager {

BOOST_AUTO_TEST_SUITE(manager_call_counts)

BOOST_AUTO_TEST_CASE(answers_are_counted_by_call_and_code) {
  using namespace std::chrono_literals;
  call_counts counts;
  counts.note(rpc::start_write_cache, answer_code::ok, 100ns);
  counts.note(rpc::start_write_cache, answer_code::ok, 50ns);
  counts.note(rpc::start_write_cache, answer_code::reach_max_entity_capacity, 10ns);
  const auto record = counts.record_of(rpc::start_write_cache);
  BOOST_TEST(record.answers.at(answer_code::ok) == 2U);
  BOOST_TEST(record.answers.at(answer_code::reach_max_entity_capacity) == 1U);
  BOOST_TEST(record.times.count() == 3U);
  BOOST_TEST(record.times.sum() == 160U);
  BOOST_TEST(counts.record_of(rpc::finish_write_cache).answers.empty());
}

BOOST_AUTO_TEST_CASE(threads_lose_no_count) {
  call_counts counts;
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        for (int k = 0; k < 1000; ++k) {
          counts.note(rpc::get_cache_location, answer_code::ok, std::chrono::nanoseconds(1));
          counts.note_lookup(8, 3);
        }
      });
    }
  }
  BOOST_TEST(counts.record_of(rpc::get_cache_location).times.count() == 4000U);
  BOOST_TEST(counts.keys() == 32'000U);
  BOOST_TEST(counts.hits() == 12'000U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
