// Counts of steps under sanitizers: faults show in few of them, which take several times as long.
#pragma once

namespace cenote::testing {

/// The rough cost of a step under the sanitizer of this build, in steps without one. Counts of steps are divided by it.
#if defined(__SANITIZE_THREAD__)
inline constexpr int step_cost = 10;
#elif defined(__SANITIZE_ADDRESS__)
inline constexpr int step_cost = 4;
#else
inline constexpr int step_cost = 1;
#endif

/// False where the thread sanitizer watches: of one thread alone it sees nothing, and takes ten times as long.
/// BOOST_AUTO_TEST_CASE(name, *boost::unit_test::enable_if<cenote::testing::runs_lone_threads>()).
#if defined(__SANITIZE_THREAD__)
inline constexpr bool runs_lone_threads = false;
#else
inline constexpr bool runs_lone_threads = true;
#endif

}  // namespace cenote::testing
