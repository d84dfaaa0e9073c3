#include "worker/publisher/event_ring.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote::publishing::event_ring_test {

namespace {

numbered_batch batch_of(std::uint64_t seq, std::size_t bytes, const shared_text& topic) {
  return {topic, seq, std::make_shared<const std::string>(bytes, 'x')};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(event_ring_suite)

BOOST_AUTO_TEST_CASE(the_oldest_leave_by_number_and_by_size) {
  const auto topic = std::make_shared<const std::string>("t");
  event_ring ring({.batches = 5, .bytes = 100});
  for (std::uint64_t n = 0; n < 7; ++n) ring.add(batch_of(n, 10, topic));
  BOOST_TEST(ring.first() == 2U);
  BOOST_TEST(ring.end() == 7U);
  BOOST_TEST(ring.batch_at(2).seq == 2U);
  BOOST_TEST(ring.bytes() == 50U);
  ring.add(batch_of(7, 80, topic));
  BOOST_TEST(ring.first() == 5U);
  BOOST_TEST(ring.bytes() == 100U);
  ring.add(batch_of(8, 500, topic));  // one is kept, whatever its size
  BOOST_TEST(ring.first() == 8U);
  BOOST_TEST(ring.end() == 9U);
}

BOOST_AUTO_TEST_CASE(a_topic_that_is_forgotten_leaves_places_behind) {
  const auto one = std::make_shared<const std::string>("one");
  const auto other = std::make_shared<const std::string>("other");
  event_ring ring({.batches = 4, .bytes = 1000});
  for (std::uint64_t n = 0; n < 4; ++n) ring.add(batch_of(n, 10, n % 2 == 0 ? one : other));
  ring.forget(one);
  BOOST_TEST(ring.bytes() == 20U);
  BOOST_TEST(!ring.batch_at(0).topic);
  BOOST_TEST(ring.batch_at(1).seq == 1U);
  for (std::uint64_t n = 0; n < 4; ++n) ring.add(batch_of(n, 10, other));
  BOOST_TEST(ring.bytes() == 40U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::publishing::event_ring_test
