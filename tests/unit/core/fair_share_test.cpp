#include "core/fair_share.hpp"

#include <array>
#include <boost/test/unit_test.hpp>
#include <numeric>

namespace cenote {

BOOST_AUTO_TEST_SUITE(fair_shares)

BOOST_AUTO_TEST_CASE(one_may_have_one_more_only_while_he_has_fewer_than_are_free) {
  for (std::uint64_t total = 0; total < 40; ++total) {
    for (std::uint64_t others = 0; others <= total; ++others) {
      for (std::uint64_t own = 0; own <= total - others; ++own) {
        BOOST_TEST((own < fair_share(total, others)) == (own < total - others - own));
      }
    }
  }
  BOOST_TEST(fair_share(4, 5) == 0U);
}

BOOST_AUTO_TEST_CASE(users_who_take_all_that_they_may_leave_some_for_the_next) {
  std::array<std::uint64_t, 7> users{};
  const auto taken = [&] { return std::accumulate(users.begin(), users.end(), std::uint64_t{0}); };
  for (std::uint64_t& each : users) {
    BOOST_TEST(taken() < 256U);
    while (each < fair_share(256, taken() - each)) ++each;
    BOOST_TEST(each > 0U);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
