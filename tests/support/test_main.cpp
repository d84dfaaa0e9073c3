// Boost.Test's main for every test program.
#define BOOST_TEST_MODULE cenote
#include <boost/test/unit_test.hpp>
