#include "simulation/optimize/instance_parts.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/unit/simulation/optimize/random_requests.hpp"

namespace cenote::simulation {

BOOST_AUTO_TEST_SUITE(parts_of_instances)

BOOST_AUTO_TEST_CASE(each_request_is_in_the_part_of_its_instance_as_it_was) {
  using namespace testing_models;
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    const trace whole = random_requests(seed, chain_kind::any, access_kind::apart);
    const instance_parts parts(whole);
    std::set<std::uint32_t> instances;
    for (const trace::entry& each : whole.requests()) instances.insert(each.instance);
    BOOST_TEST(parts.instances() == std::vector(instances.begin(), instances.end()), boost::test_tools::per_element());
    for (std::size_t place = 0; place < instances.size(); ++place) {
      const trace part = parts.part(place);
      std::size_t i = 0;
      for (const trace::entry& each : whole.requests()) {
        if (each.instance != parts.instances()[place]) continue;
        BOOST_REQUIRE(i < part.requests().size());
        const trace::entry& same = part.requests()[i++];
        BOOST_TEST(same.time_ms == each.time_ms);
        BOOST_TEST(same.tokens == each.tokens);
        BOOST_TEST(same.session == each.session);
        BOOST_TEST((same.access == each.access));
        BOOST_TEST(std::ranges::equal(part.ids(same), whole.ids(each)));
      }
      BOOST_TEST(i == part.requests().size());
      for (std::size_t count = 0; count <= whole.requests().size(); ++count) {
        const auto among_first =
            std::ranges::count(whole.requests().first(count), parts.instances()[place], &trace::entry::instance);
        BOOST_TEST(parts.count_within(place, count) == static_cast<std::size_t>(among_first));
      }
      BOOST_TEST(part.block_tokens() == whole.block_tokens());
    }
  }
}

BOOST_AUTO_TEST_CASE(no_requests_have_no_parts) {
  const trace none;
  BOOST_TEST(instance_parts(none).instances().empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
