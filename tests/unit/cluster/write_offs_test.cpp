// Nodes that never come back.
#include "cluster/write_offs.hpp"

#include <boost/test/unit_test.hpp>

#include <string>

namespace {

using cenote::cluster::write_offs;

}  // namespace

BOOST_AUTO_TEST_SUITE(write_offs_of_nodes)

BOOST_AUTO_TEST_CASE(each_write_off_of_a_node_has_a_greater_number_also_when_the_clock_goes_back) {
  write_offs all;
  all.begin("b", 100);
  BOOST_TEST(all.number_of("b") == 100U);
  all.begin("b", 90);
  BOOST_TEST(all.number_of("b") == 101U);
}

BOOST_AUTO_TEST_CASE(what_another_node_knows_counts_once_and_not_after_its_end) {
  write_offs all;
  BOOST_TEST(all.learn("b", 5));
  BOOST_TEST(!all.learn("b", 5));
  BOOST_TEST(!all.learn("b", 4));
  all.close("b", 5);
  BOOST_TEST(!all.has("b"));
  BOOST_TEST(!all.learn("b", 5));
  BOOST_TEST(all.learn("b", 6));
}

BOOST_AUTO_TEST_CASE(an_end_that_another_node_tells_keeps_the_number_from_being_learned_and_ends_nothing_here) {
  write_offs all;
  all.close_elsewhere(5);
  BOOST_TEST(!all.learn("b", 5));
  BOOST_TEST(!all.has("b"));
  BOOST_TEST(all.learn("b", 6));
  all.close_elsewhere(6);
  BOOST_TEST(all.number_of("b") == 6U);  // until it has confirmed its clear here
  all.close("b", 6);
  BOOST_TEST(!all.has("b"));
}

BOOST_AUTO_TEST_CASE(the_end_of_an_earlier_write_off_ends_no_later_one) {
  write_offs all;
  BOOST_TEST(all.learn("b", 5));
  BOOST_TEST(all.learn("b", 6));
  all.close("b", 5);
  BOOST_TEST(all.number_of("b") == 6U);
}

BOOST_AUTO_TEST_CASE(the_oldest_of_too_many_gives_way_and_that_is_remembered) {
  write_offs all;
  for (std::size_t i = 0; i < write_offs::most_write_offs; ++i) all.begin(std::to_string(i), 10 + i);
  all.begin("1", 9000);
  BOOST_TEST(!all.is_incomplete());
  BOOST_TEST(!all.learn("b", 9));  // older than all of them
  BOOST_TEST(all.is_incomplete());
  BOOST_TEST(all.has("0"));
  BOOST_TEST(all.learn("b", 9001));
  BOOST_TEST(!all.has("0"));
  all.begin("c", 1);
  BOOST_TEST(!all.has("2"));
  BOOST_TEST(all.record().nodes.size() == write_offs::most_write_offs);
}

BOOST_AUTO_TEST_CASE(the_oldest_numbers_of_those_that_are_over_are_forgotten) {
  write_offs all;
  for (std::uint64_t number = 1; number <= write_offs::most_numbers + 1; ++number) all.close("nobody", number);
  BOOST_TEST(!all.is_closed(1));
  BOOST_TEST(all.is_closed(2));
}

BOOST_AUTO_TEST_SUITE_END()
