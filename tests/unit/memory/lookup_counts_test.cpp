// The counts that a client keeps of its lookups.
#include "memory/lookup_counts.hpp"

#include <boost/test/unit_test.hpp>
#include <thread>
#include <vector>

namespace cenote::memory::lookup_counts_test {

BOOST_AUTO_TEST_SUITE(lookup_counts_suite)

BOOST_AUTO_TEST_CASE(each_call_is_counted_in_the_words_of_its_kind) {
  lookup_words words{};
  words.add_match(10, 7);
  words.add_lower(2);
  words.add_read(7, 6);
  words.add_match(1, 0);
  const lookup_counts expected{
      .match_keys = 11, .match_resident = 7, .match_lower = 2, .read_keys = 7, .read_resident = 6};
  BOOST_TEST((words.load() == expected));
}

BOOST_AUTO_TEST_CASE(no_count_of_several_threads_is_lost) {
  constexpr std::uint64_t calls = 10'000;
  lookup_words words{};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&words] {
      for (std::uint64_t call = 0; call < calls; ++call) {
        words.add_match(3, 2);
        words.add_lower(call % 2);
        words.add_read(2, 1);
      }
    });
  }
  for (std::thread& each : threads) each.join();
  const lookup_counts expected{.match_keys = 12 * calls,
                               .match_resident = 8 * calls,
                               .match_lower = 2 * calls,
                               .read_keys = 8 * calls,
                               .read_resident = 4 * calls};
  BOOST_TEST((words.load() == expected));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::memory::lookup_counts_test
