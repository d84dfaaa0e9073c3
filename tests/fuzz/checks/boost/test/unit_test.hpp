// The checks of unit tests where a fuzzer includes their helpers: the first one that fails ends the program.
#pragma once

#include <cstdlib>
#include <iostream>

#define BOOST_TEST(condition, ...)                                                                        \
  do {                                                                                                    \
    if (!(condition)) {                                                                                   \
      std::cerr << __FILE__ << ':' << __LINE__ << ": " #condition " " __VA_OPT__(<<) __VA_ARGS__ << '\n'; \
      std::abort();                                                                                       \
    }                                                                                                     \
  } while (false)
#define BOOST_TEST_REQUIRE(...) BOOST_TEST(__VA_ARGS__)
