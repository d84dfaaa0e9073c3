#include "cluster/recent_loans.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/support/numbered_identity.hpp"

namespace {

using namespace cenote;

}  // namespace

BOOST_AUTO_TEST_SUITE(recent_loans)

BOOST_AUTO_TEST_CASE(who_got_a_block_last_is_known_by_instance_and_key) {
  cluster::recent_loans loans;
  loans.note(1_identity, {5, 6}, "a");
  loans.note(2_identity, {5, 6}, "b");
  loans.note(1_identity, {5, 6}, "c");
  BOOST_TEST(loans.borrower(1_identity, {5, 6}) == "c");
  BOOST_TEST(loans.borrower(2_identity, {5, 6}) == "b");
  BOOST_TEST(loans.borrower(1_identity, {6, 5}).empty());
  BOOST_TEST(loans.size() == 2U);
}

BOOST_AUTO_TEST_CASE(no_more_than_so_many_are_remembered) {
  cluster::recent_loans loans;
  for (std::uint64_t n = 0; n < cluster::recent_loans::most + 10; ++n) loans.note(1_identity, {n, n}, "a");
  BOOST_TEST(loans.size() == cluster::recent_loans::most);
  BOOST_TEST(loans.borrower(1_identity, {9, 9}).empty());
  BOOST_TEST(loans.borrower(1_identity, {10, 10}) == "a");
}

BOOST_AUTO_TEST_SUITE_END()
