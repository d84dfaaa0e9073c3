// Slabs: their numbers and their memory.
#include "tiers/blocks/slab_space.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks {

using namespace testing;

BOOST_FIXTURE_TEST_SUITE(slab_space_suite, bare_parts)

BOOST_AUTO_TEST_CASE(slabs_are_asked_for_as_long_as_they_fit) {
  instance& in = add();
  pool& group = pool_in(in);
  while (of.space.slab_fits(group)) BOOST_TEST(of.space.ask_slab(group, now));
  BOOST_TEST(of.all.assigned <= of.all.options.capacity);
  BOOST_TEST(of.all.assigned + group.stride * group.blocks_per_slab > of.all.options.capacity - memory::page_bytes);
  const std::uint32_t asked = group.slabs_asked;
  BOOST_TEST(asked > 0U);
  BOOST_TEST(pump() == asked);
  BOOST_TEST(group.slabs_asked == 0U);
  BOOST_TEST(of.space.slab_memory().size() == group.slabs.size());
}

BOOST_AUTO_TEST_CASE(a_slab_that_could_not_be_made_leaves_nothing_and_no_other_is_asked_for_soon) {
  instance& in = add();
  pool& group = pool_in(in);
  const std::uint64_t before = of.all.assigned;
  BOOST_TEST(of.space.ask_slab(group, now));
  const auto requests = of.space.take_requests();
  BOOST_REQUIRE(requests.size() == 1U);
  of.space.slab_failed(requests[0].slab, now + tenths(10));
  BOOST_TEST(of.all.assigned == before);
  BOOST_TEST(!of.space.ask_slab(group, now));
  BOOST_TEST(of.space.ask_slab(group, now + tenths(10)));
  BOOST_TEST(of.space.take_requests()[0].slab.first_record == requests[0].slab.first_record);  // its place is free
}

BOOST_AUTO_TEST_CASE(the_number_of_a_slab_that_is_gone_does_not_come_again_while_somebody_may_know_it) {
  instance& in = add();
  (void)attach(in);
  slab& victim = *in.slabs.begin()->second;
  const slab_description what = victim.what;
  of.space.drop_slab(victim);
  BOOST_TEST(in.slabs.empty());
  BOOST_TEST((of.space.take_requests()[0].what == slab_request::kind::drop));
  of.space.slab_dropped(what);
  BOOST_TEST(of.space.ask_slab(pool_in(in), now));
  BOOST_TEST(of.space.take_requests()[0].slab.index != what.index);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks
