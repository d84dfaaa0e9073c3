#include "core/count_text.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote {

BOOST_AUTO_TEST_SUITE(count_texts)

BOOST_AUTO_TEST_CASE(a_noun_has_an_s_but_for_one) {
  BOOST_TEST(count_text(0, "replica") == "0 replicas");
  BOOST_TEST(count_text(1, "replica") == "1 replica");
  BOOST_TEST(count_text(2, "replica") == "2 replicas");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
