#include "memory/crash_guard.hpp"

#include <boost/test/unit_test.hpp>
#include <cstring>
#include <vector>

namespace cenote::memory {

namespace {

struct fixture {
  alignas(4096) std::byte page[page_bytes]{};
  crash_guard guard{page};
  /// A worker dies while it carries out a batch of `session`, and another one takes over.
  void die(std::uint64_t session) {
    guard.begin(session);
    guard = crash_guard(page);
    BOOST_TEST(guard.count_death() == session);
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(memory_crash_guard, fixture)

BOOST_AUTO_TEST_CASE(a_session_under_way_at_two_deaths_is_a_suspect) {
  BOOST_TEST(guard.count_death() == 0U);
  die(7);
  BOOST_TEST(!guard.is_suspect(7));
  die(7);
  BOOST_TEST(guard.is_suspect(7));
  BOOST_TEST(!guard.is_suspect(8));
  BOOST_TEST(!guard.is_suspect(0));
}

BOOST_AUTO_TEST_CASE(a_death_between_two_batches_counts_for_nobody) {
  guard.begin(7);
  guard.end();
  BOOST_TEST(crash_guard(page).count_death() == 0U);
  BOOST_TEST(guard.counted().empty());
}

BOOST_AUTO_TEST_CASE(a_batch_that_went_well_clears_its_session_and_no_other) {
  die(7);
  die(8);
  guard.forget(7);
  die(7);
  die(8);
  BOOST_TEST(!guard.is_suspect(7));
  BOOST_TEST(guard.is_suspect(8));
  guard.forget(7);
  guard.forget(8);
  BOOST_TEST(guard.counted().empty());
  die(8);
  BOOST_TEST(guard.deaths(8) == 1U);
}

BOOST_AUTO_TEST_CASE(a_full_table_gives_up_who_has_the_fewest_deaths) {
  die(1);
  die(1);
  for (std::uint64_t session = 2; session <= crash_page::counted + 10; ++session) die(session);
  BOOST_TEST(guard.is_suspect(1));
  BOOST_TEST(guard.counted().size() == crash_page::counted);
  die(crash_page::counted + 10);
  BOOST_TEST(guard.is_suspect(crash_page::counted + 10));
}

BOOST_AUTO_TEST_CASE(the_header_of_the_segment_is_left_alone) {
  std::vector<std::byte> header(sizeof(segment_header), std::byte{0x5a});
  std::memcpy(page, header.data(), header.size());
  die(3);
  guard.forget(3);
  BOOST_TEST(std::memcmp(page, header.data(), header.size()) == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::memory
