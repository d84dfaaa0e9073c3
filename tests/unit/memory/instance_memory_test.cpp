#include <boost/test/unit_test.hpp>

#include <string>

#include "memory/instance_memory.hpp"

using namespace cenote::memory;

BOOST_AUTO_TEST_SUITE(instance_memories)

BOOST_AUTO_TEST_CASE(a_new_one_holds_no_block_and_is_not_retired) {
  const auto made = instance_memory::create("an instance");
  BOOST_REQUIRE(made);
  BOOST_TEST(made->index.size() == 0U);
  BOOST_TEST(!made->versions.is_retired());
}

BOOST_AUTO_TEST_CASE(a_name_longer_than_the_system_takes_is_cut) {
  BOOST_TEST(instance_memory::create(std::string(4096, 'n')).has_value());
}

BOOST_AUTO_TEST_SUITE_END()
