// Which server a block belongs to: evenly, and with one server less only its share moves.
#include "tiers/remote/rendezvous.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <vector>

#include "tests/support/numbered_identity.hpp"

namespace cenote::remote {

namespace {

block_key block_number(std::uint64_t number) {
  return {.hi = number, .lo = 7};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(rendezvous)

BOOST_AUTO_TEST_CASE(blocks_lie_evenly_and_only_those_of_a_lost_server_move) {
  const std::vector<std::uint64_t> four{seed_of("a:1"), seed_of("b:1"), seed_of("c:1"), seed_of("d:1")};
  const std::vector<std::uint64_t> three{four[0], four[1], four[3]};
  const std::array<std::size_t, 3> names{0, 1, 3};
  std::array<std::size_t, 4> shares{};
  for (std::uint64_t i = 0; i < 40000; ++i) {
    const auto home = home_of(1_identity, block_number(i), four);
    ++shares[home];
    if (home != 2) BOOST_REQUIRE(names[home_of(1_identity, block_number(i), three)] == home);
  }
  for (const std::size_t share : shares) BOOST_TEST((share > 9500 && share < 10500));
}

BOOST_AUTO_TEST_CASE(the_order_in_which_servers_are_named_does_not_matter) {
  const std::vector<std::uint64_t> one_way{seed_of("a:1"), seed_of("b:1")};
  const std::vector<std::uint64_t> other_way{seed_of("b:1"), seed_of("a:1")};
  for (std::uint64_t i = 0; i < 1000; ++i) {
    BOOST_REQUIRE(one_way[home_of(1_identity, block_number(i), one_way)] ==
                  other_way[home_of(1_identity, block_number(i), other_way)]);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::remote
