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
constexpr epoch today = 1'800'000'000'000'000'000;  // nanoseconds of the calendar

/// The epoch of a clear so many numbers of clears behind `base`.
epoch clear_number(epoch base, epoch steps) {
  return base + (steps << 22U);
}
epoch clear_number(epoch steps) {
  return clear_number(epoch{1} << 60U, steps);
}

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
  BOOST_REQUIRE(book->keep(here, {5000}).has_value());
  BOOST_TEST(book->next(here, 0, 1000) == 5001U);
  BOOST_TEST(book->next(here, 7000, 1000) == 7001U);
  BOOST_TEST(book->next(here, epoch_limit - 1, 1000) < epoch_limit);
  BOOST_TEST(book->next(here, 0, 0) == 5001U);
}

BOOST_AUTO_TEST_CASE(epochs_differ_by_a_clear_only_where_there_was_one) {
  const test::scratch_folder folder;
  auto book = epoch_book::open(folder / "book", 1);
  BOOST_REQUIRE(book.has_value());
  const epoch first = book->next(here, 0, today);
  BOOST_REQUIRE(book->keep(here, {first}).has_value());
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
  BOOST_REQUIRE(book->keep(here, {last}).has_value());
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
  BOOST_REQUIRE(book->keep(here, {9}).has_value());
  BOOST_REQUIRE(book->keep(here, {5}).has_value());
  BOOST_TEST(book->known(here) == 9U);
}

BOOST_AUTO_TEST_CASE(a_clear_of_another_node_is_known_until_it_was_carried_out_here_also_by_the_next_process) {
  constexpr epoch cleared = epoch{1} << 60U;
  const test::scratch_folder folder;
  {
    auto book = epoch_book::open(folder / "book", 1);
    BOOST_REQUIRE(book->keep(here, {5}).has_value());
    book->propose({here.server, 8_identity}, cleared);
    BOOST_REQUIRE(
        book->adopt({here.server, 8_identity}, {cleared}).has_value());  // of this node itself: its answer was lost
    BOOST_TEST(!book->is_uncleared_above({here.server, 8_identity}));
    BOOST_REQUIRE(book->adopt(here, {6}).has_value());
    BOOST_TEST(!book->is_uncleared_above(here));
    BOOST_REQUIRE(book->adopt(here, {cleared}).has_value());
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

BOOST_AUTO_TEST_CASE(a_record_is_an_epoch_and_the_clears_before_it_and_nothing_else_is_read_as_one) {
  const epoch_record written{.number = clear_number(9), .clears = {clear_number(8), clear_number(5)}};
  const std::string text = record_text(written);
  BOOST_TEST(text.size() == 48U);
  const epoch_record read = record_in(text, today);
  BOOST_TEST(read.number == written.number);
  BOOST_TEST(read.clears == written.clears, boost::test_tools::per_element());
  BOOST_TEST(record_in(epoch_text(7), today).number == 7U);
  const std::string one = epoch_text(clear_number(9) + 5);
  for (const std::string& wrong :
       {std::string(), one + "0", one + epoch_text(7), one + epoch_text(epoch_limit), one + std::string(16, 'x'),
        one + epoch_text(clear_number(5)) + epoch_text(clear_number(8)),  // earlier ones first
        one + epoch_text(clear_number(5)) + epoch_text(clear_number(5)),  // twice
        one + epoch_text(clear_number(9)),                                // of the epoch's own clear
        one + epoch_text(clear_number(10)),                               // later than it
        epoch_text(today + (epoch{1} << 61U)), std::string(16, '0') + one}) {
    BOOST_TEST(record_in(wrong, today).number == 0U, wrong);
  }
  epoch_record full{.number = clear_number(100)};
  for (epoch each = 1; each <= epoch_record::most_clears; ++each) full.add({.number = clear_number(each)});
  BOOST_TEST(record_in(record_text(full), today).number == full.number);
  BOOST_TEST(record_in(record_text(full) + epoch_text(1), today).number == 0U);
}

BOOST_AUTO_TEST_CASE(a_record_covers_the_clears_that_it_names_and_those_before_as_many_as_it_can_name) {
  epoch_record record{.number = clear_number(100)};
  BOOST_TEST(record.covers(0));
  BOOST_TEST(record.covers(7));                      // of an instance that was never cleared
  BOOST_TEST(record.covers(clear_number(100) + 5));  // the same clear, for a server that had forgotten
  BOOST_TEST(!record.covers(clear_number(50)));
  for (epoch each = 10; each < 10 + epoch_record::most_clears; ++each) record.add({.number = clear_number(each)});
  record.add({.number = 7});
  record.add({.number = clear_number(10), .clears = {clear_number(100)}});
  BOOST_TEST(record.clears.size() == epoch_record::most_clears);
  BOOST_TEST(record.covers(clear_number(10)));
  BOOST_TEST(record.covers(clear_number(3)));
  BOOST_TEST(!record.covers(clear_number(50)));
  BOOST_TEST(!record.covers(clear_number(101)));
  record.add({.number = clear_number(50)});
  BOOST_TEST(record.clears.front() == clear_number(50));
  BOOST_TEST(record.clears.back() == clear_number(11));
}

BOOST_AUTO_TEST_CASE(a_clear_that_a_server_lost_before_another_node_heard_of_it_is_carried_out_once_more) {
  const test::scratch_folder folder;
  auto book = epoch_book::open(folder / "book", 1);
  const auto clear = [&](const epoch_record& current, epoch now) {
    BOOST_REQUIRE(book->keep_pending(here.server, {here.identity}).has_value());
    const epoch_record made = book->next_record(here, current, now);
    BOOST_REQUIRE(book->keep(here, made).has_value());
    return made;
  };
  const epoch_record first = clear({}, today);
  const epoch_record own = clear(first, today + 1'000'000'000);
  BOOST_TEST(own.covers(first.number));
  // The server falls back to the first clear, and another node clears without a word of the second one.
  const epoch_record other{.number = clear_number(own.number, 5), .clears = {first.number}};
  BOOST_TEST(book->is_clear_of_another(here, other.number));
  BOOST_REQUIRE(book->adopt(here, other).has_value());
  BOOST_TEST(book->is_uncleared_above(here));
  BOOST_TEST(book->is_pending(here));
  const epoch_record again = book->next_record(here, other, today + 2'000'000'000);
  BOOST_TEST(again.covers(other.number));
  BOOST_TEST(again.covers(own.number));
  BOOST_TEST(again.covers(first.number));
  BOOST_REQUIRE(book->keep(here, again).has_value());
  BOOST_TEST(!book->is_pending(here));
  // Another node was faster: its clear knows of the lost one, and stands for it.
  const epoch_record ignorant{.number = clear_number(again.number, 5), .clears = {first.number}};
  BOOST_REQUIRE(book->adopt(here, ignorant).has_value());
  BOOST_TEST(book->is_pending(here));
  const epoch_record faster{.number = clear_number(ignorant.number, 5), .clears = {ignorant.number, again.number}};
  BOOST_REQUIRE(book->adopt(here, faster).has_value());
  BOOST_TEST(!book->is_pending(here));
  // An order of this node's own stays one.
  BOOST_REQUIRE(book->keep_pending(here.server, {here.identity}).has_value());
  const epoch_record next{.number = clear_number(faster.number, 5), .clears = {faster.number}};
  BOOST_REQUIRE(book->adopt(here, next).has_value());
  BOOST_TEST(book->is_pending(here));
  BOOST_REQUIRE(book->keep(here, book->next_record(here, next, today)).has_value());
  BOOST_TEST(!book->is_pending(here));
  // One that knows of all is adopted as it is.
  const epoch_record later{.number = clear_number(book->known(here), 5), .clears = {book->known(here)}};
  BOOST_REQUIRE(book->adopt(here, later).has_value());
  BOOST_TEST(!book->is_pending(here));
}

BOOST_AUTO_TEST_CASE(an_older_epoch_of_a_server_is_that_of_another_nodes_clear_unless_this_node_knows_it) {
  const test::scratch_folder folder;
  auto book = epoch_book::open(folder / "book", 1);
  const epoch first = clear_number(today, 0);
  const epoch second = clear_number(today, 1000);
  BOOST_REQUIRE(book->adopt(here, {first}).has_value());
  BOOST_REQUIRE(book->keep_cleared_above(here).has_value());
  BOOST_REQUIRE(book->keep(here, {second}).has_value());
  BOOST_REQUIRE(book->look_back(here, 0).has_value());
  BOOST_REQUIRE(book->look_back(here, 7).has_value());
  BOOST_REQUIRE(book->look_back(here, first).has_value());  // the server has lost the second
  BOOST_TEST(!book->is_uncleared_above(here));
  book = epoch_book::open(folder / "other", 1);  // gives the lock back
  book = epoch_book::open(folder / "book", 1);   // the next process knows it, too
  BOOST_REQUIRE(book->look_back(here, first).has_value());
  BOOST_TEST(!book->is_uncleared_above(here));
  const epoch of_a_slow_clock = clear_number(today, 500);
  BOOST_REQUIRE(book->look_back(here, of_a_slow_clock).has_value());
  BOOST_TEST(book->is_uncleared_above(here));
  BOOST_TEST(book->known(here) == second);
  const epoch_record both =
      book->next_record(here, {of_a_slow_clock}, today);  // nodes that know the second obey it, too
  BOOST_TEST(both.covers(of_a_slow_clock));
  BOOST_TEST(both.covers(second));
  BOOST_TEST(differ_by_clear(both.number, second));
  BOOST_REQUIRE(book->keep(here, both).has_value());
  BOOST_TEST(!book->is_pending(here));
  BOOST_REQUIRE(book->keep_cleared_above(here).has_value());
  BOOST_REQUIRE(book->look_back(here, of_a_slow_clock).has_value());  // once
  BOOST_TEST(!book->is_uncleared_above(here));
}

BOOST_AUTO_TEST_CASE(what_no_server_had_is_no_clear_that_others_should_know) {
  const test::scratch_folder folder;
  write_bytes(folder / "book", "damaged");
  auto book = epoch_book::open(folder / "book", clear_number(today, 1000));  // as if all had been cleared then
  const epoch_record older{.number = clear_number(today, 10)};
  BOOST_TEST(!book->is_clear_of_another(here, older.number));
  BOOST_REQUIRE(book->look_back(here, older.number).has_value());
  const epoch_record offered = book->next_record(here, older, today);
  BOOST_TEST(offered.clears == std::vector{older.number}, boost::test_tools::per_element());
  book->propose(here, offered.number);  // and the answer is lost
  const epoch_record other{.number = clear_number(today, 2000), .clears = {older.number}};
  BOOST_REQUIRE(book->adopt(here, other).has_value());
  BOOST_TEST(book->is_uncleared_above(here));
  BOOST_TEST(!book->is_pending(here));
}

BOOST_AUTO_TEST_CASE(clears_of_two_nodes_behind_an_epoch_ahead_of_their_clocks_differ) {
  const test::scratch_folder folder;
  auto book = epoch_book::open(folder / "book", 1);
  BOOST_REQUIRE(book->keep_pending(here.server, {here.identity}).has_value());
  const epoch ahead = clear_number(today, 1'000'000'000);
  int equal = 0;
  for (epoch now = today; now < today + 1000; ++now)
    equal += differ_by_clear(book->next(here, ahead, now), book->next(here, ahead, now + 77'777'777)) ? 0 : 1;
  BOOST_TEST(equal < 20);
}

BOOST_AUTO_TEST_CASE(epochs_and_clears_to_be_carried_out_outlive_the_process) {
  const test::scratch_folder folder;
  {
    auto book = epoch_book::open(folder / "book", 1);
    BOOST_REQUIRE(book.has_value());
    BOOST_REQUIRE(book->keep(here, {5}).has_value());
    BOOST_REQUIRE(book->keep_pending(3, {4_identity}).has_value());
  }
  {
    auto book = epoch_book::open(folder / "book", 1);
    BOOST_REQUIRE(book.has_value());
    BOOST_TEST(book->known(here) == 5U);
    BOOST_TEST(!book->is_pending(here));
    BOOST_TEST(book->is_pending({3, 4_identity}));
    BOOST_REQUIRE(book->keep({3, 4_identity}, {9}).has_value());
  }
  BOOST_TEST(!epoch_book::open(folder / "book", 1)->is_pending({3, 4_identity}));
}

BOOST_AUTO_TEST_CASE(a_damaged_book_makes_every_older_epoch_count_as_old) {
  const test::scratch_folder folder;
  const auto file = folder / "book";
  BOOST_REQUIRE(epoch_book::open(file, 1)->keep(here, {5}).has_value());
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
