#include <boost/test/unit_test.hpp>

extern "C" int cenote_c_abi_test(void);

BOOST_AUTO_TEST_CASE(the_c_abi_is_usable_from_c) {
  BOOST_TEST(cenote_c_abi_test() == 0, "failed at that line of c_abi_test.c");
}
