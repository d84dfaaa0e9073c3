// The epochs that a node keeps: increasing, on disk, bounded, and safe when the file is damaged.
#include "tiers/remote/epoch_book.hpp"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/support/numbered_identity.hpp"
#include "tests/support/redis_server.hpp"

namespace cenote::remote {

namespace {

const epoch_book::place here{1, 2_identity};

std::string bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

void write_bytes(const std::string& file, std::string_view bytes) {
  std::ofstream(file, std::ios::binary | std::ios::trunc) << bytes;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(epochs)

BOOST_AUTO_TEST_CASE(an_epoch_is_written_as_16_digits_and_nothing_else_is_read_as_one) {
  BOOST_TEST(epoch_text(0x1a) == "000000000000001a");
  BOOST_TEST(epoch_in("000000000000001a") == 0x1aU);
  for (const char* text : {"", "1a", "000000000000001g", "-00000000000001a", "0x0000000000001a", "8000000000000000",
                           "000000000000001a0"}) {
    BOOST_TEST(epoch_in(text) == 0U, text);
  }
}

BOOST_AUTO_TEST_CASE(the_next_epoch_is_above_the_clock_what_is_known_and_what_was_seen) {
  const test::scratch_folder folder;
  auto book = epoch_book::open(folder / "book", 1);
  BOOST_REQUIRE(book.has_value());
  BOOST_TEST(book->next(here, 0, 7000000) == 7000U);  // microseconds
  BOOST_REQUIRE(book->keep(here, 5000).has_value());
  BOOST_TEST(book->next(here, 0, 1000) == 5001U);
  BOOST_TEST(book->next(here, 7000, 1000) == 7001U);
  BOOST_TEST(book->next(here, epoch_limit - 1, 1000) < epoch_limit);
  BOOST_TEST(book->next(here, 0, 0) == 5001U);
}

BOOST_AUTO_TEST_CASE(epochs_differ_by_a_clear_only_where_there_was_one) {
  constexpr epoch today = 1'800'000'000'000'000'000;  // nanoseconds of the calendar
  const test::scratch_folder folder;
  auto book = epoch_book::open(folder / "book", 1);
  BOOST_REQUIRE(book.has_value());
  const epoch first = book->next(here, 0, today);
  BOOST_REQUIRE(book->keep(here, first).has_value());
  const epoch again = book->next(here, 0, today + 1);  // the server had forgotten
  BOOST_TEST(again > first);
  BOOST_TEST(!differ_by_clear(first, again));
  BOOST_TEST(!differ_by_clear(0, again));
  BOOST_REQUIRE(book->keep_pending(here.server, {here.identity}).has_value());
  epoch last = again;
  for (int clear = 0; clear < 3; ++clear) {
    const epoch next = book->next(here, last, today);
    BOOST_TEST(next > last);
    BOOST_TEST(differ_by_clear(last, next));
    last = next;
  }
  BOOST_TEST(differ_by_clear(book->next(here, 0, today), book->next(here, 0, today + 5'000'000)));  // 5 ms
  BOOST_REQUIRE(book->keep(here, last).has_value());
  for (epoch now = today; now < today + 1000; ++now) {
    const epoch next = book->next(here, last, now);
    BOOST_REQUIRE(next > last);
    BOOST_REQUIRE(!differ_by_clear(last, next));
    last = next;
  }
}

BOOST_AUTO_TEST_CASE(an_epoch_that_another_connection_made_later_stays) {
  const test::scratch_folder folder;
  auto book = epoch_book::open(folder / "book", 1);
  BOOST_REQUIRE(book->keep(here, 9).has_value());
  BOOST_REQUIRE(book->keep(here, 5).has_value());
  BOOST_TEST(book->known(here) == 9U);
}

BOOST_AUTO_TEST_CASE(a_clear_of_another_node_is_known_until_it_was_carried_out_here_also_by_the_next_process) {
  constexpr epoch cleared = epoch{1} << 60U;
  const test::scratch_folder folder;
  {
    auto book = epoch_book::open(folder / "book", 1);
    BOOST_REQUIRE(book->keep(here, 5).has_value());
    book->propose({here.server, 8_identity}, cleared);
    BOOST_REQUIRE(
        book->adopt({here.server, 8_identity}, cleared).has_value());  // of this node itself: its answer was lost
    BOOST_TEST(!book->is_uncleared_above({here.server, 8_identity}));
    BOOST_REQUIRE(book->adopt(here, 6).has_value());
    BOOST_TEST(!book->is_uncleared_above(here));
    BOOST_REQUIRE(book->adopt(here, cleared).has_value());
  }
  auto book = epoch_book::open(folder / "book", 1);
  BOOST_TEST(book->is_uncleared_above(here));
  BOOST_TEST(book->known(here) == cleared);
  BOOST_TEST(book->clears(here) == 0U);
  BOOST_REQUIRE(book->keep_cleared_above(here).has_value());
  BOOST_TEST(book->clears(here) == 1U);
  book = epoch_book::open(folder / "other", 1);  // gives the lock back
  BOOST_TEST(!epoch_book::open(folder / "book", 1)->is_uncleared_above(here));
}

BOOST_AUTO_TEST_CASE(epochs_and_clears_to_be_carried_out_outlive_the_process) {
  const test::scratch_folder folder;
  {
    auto book = epoch_book::open(folder / "book", 1);
    BOOST_REQUIRE(book.has_value());
    BOOST_REQUIRE(book->keep(here, 5).has_value());
    BOOST_REQUIRE(book->keep_pending(3, {4_identity}).has_value());
  }
  {
    auto book = epoch_book::open(folder / "book", 1);
    BOOST_REQUIRE(book.has_value());
    BOOST_TEST(book->known(here) == 5U);
    BOOST_TEST(!book->is_pending(here));
    BOOST_TEST(book->is_pending({3, 4_identity}));
    BOOST_REQUIRE(book->keep({3, 4_identity}, 9).has_value());
  }
  BOOST_TEST(!epoch_book::open(folder / "book", 1)->is_pending({3, 4_identity}));
}

BOOST_AUTO_TEST_CASE(a_damaged_book_makes_every_older_epoch_count_as_old) {
  const test::scratch_folder folder;
  const auto file = folder / "book";
  BOOST_REQUIRE(epoch_book::open(file, 1)->keep(here, 5).has_value());
  const auto right = bytes_of(file);
  std::mt19937_64 random(1);
  for (int round = 0; round < 300; ++round) {
    auto wrong = right;
    if (round % 3 == 0) {
      wrong.resize(random() % right.size());
    } else if (round % 3 == 1) {
      wrong[random() % wrong.size()] ^= static_cast<char>(1U << (random() % 8));
    } else {
      wrong += static_cast<char>(random());
    }
    write_bytes(file, wrong);
    auto book = epoch_book::open(file, 100);
    BOOST_REQUIRE(book.has_value());
    BOOST_REQUIRE(book->was_damaged());
    BOOST_REQUIRE(book->known(here) == 100U);
  }
  BOOST_TEST(epoch_book::open(file, 200)->known(here) == 100U);  // written down: the next process knows, too
}

BOOST_AUTO_TEST_CASE(two_that_would_write_over_each_others_clears_are_kept_apart) {
  const test::scratch_folder folder;
  std::optional<result<epoch_book>> first = epoch_book::open(folder / "book", 1);
  BOOST_REQUIRE(first->has_value());
  const auto second = epoch_book::open(folder / "book", 1, std::chrono::milliseconds(0));
  BOOST_REQUIRE(!second.has_value());
  BOOST_TEST((second.error().code() == error_code::invalid_config));
  BOOST_TEST(second.error().describe().find("remote.state_dir") != std::string::npos);
  BOOST_TEST(epoch_book::open(folder / "other", 1, std::chrono::milliseconds(0)).has_value());
  first.reset();
  BOOST_TEST(epoch_book::open(folder / "book", 1, std::chrono::milliseconds(0)).has_value());
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_written_is_said) {
  BOOST_TEST(!epoch_book::open("/proc/none/book", 1).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::remote
