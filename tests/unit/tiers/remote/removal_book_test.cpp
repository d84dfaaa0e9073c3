// Removals that outlive a worker.
#include "tiers/remote/removal_book.hpp"

#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/byte_io.hpp"
#include "core/checksum.hpp"
#include "core/instance_spec.hpp"
#include "core/whole_file.hpp"
#include "tests/support/numbered_identity.hpp"
#include "tests/support/redis_server.hpp"

namespace {

using namespace cenote;
using remote::removal_book;

removal_book::open_removal order_of(const numbered_identity& identity, std::vector<block_key> keys,
                                    std::set<std::string> nodes = {"b"}) {
  return {.identity = identity, .keys = std::move(keys), .spec = {std::byte{1}}, .nodes = std::move(nodes)};
}

std::vector<std::byte> spec_of(std::uint64_t number, const std::string& group, std::size_t model_bytes = 4) {
  instance_spec spec;
  spec.id = std::to_string(number);
  spec.model = std::string(model_bytes, 'm');
  spec.tokens_per_block = 16;
  spec.groups = {{"full", {{"kv", 4096}}}};
  spec.instance_group = group;
  byte_writer writer;
  encode(writer, spec);
  return std::move(writer).take();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(removal_books)

BOOST_AUTO_TEST_CASE(what_was_written_is_read_by_the_next_worker) {
  const test::scratch_folder folder;
  const std::filesystem::path file = folder / "book";
  {
    auto book = removal_book::open(file, 1);
    BOOST_REQUIRE(book);
    BOOST_TEST(book->orders().empty());
    book->add(order_of(7, {{1, 2}, {3, 4}}, {"b", "c"}));
    book->add({.identity = 8_identity, .cleared = 99, .nodes = {"c"}});
    BOOST_TEST(book->is_changed());
    BOOST_REQUIRE(book->write({.floor = 3, .numbers = {{8_identity, {99, 98}}}},
                              {.nodes = {{"c", 5}}, .closed = {4}, .is_incomplete = true}));
    BOOST_TEST(!book->is_changed());
  }
  const auto book = removal_book::open(file, 1);
  BOOST_REQUIRE(book);
  BOOST_TEST(!book->was_damaged());
  BOOST_REQUIRE_EQUAL(book->orders().size(), 2U);
  const auto& first = book->orders().begin()->second;
  BOOST_TEST((first.identity == 7_identity));
  BOOST_TEST((first.keys == std::vector<block_key>{{1, 2}, {3, 4}}));
  BOOST_TEST((first.nodes == std::set<std::string>{"b", "c"}));
  BOOST_TEST((first.spec == std::vector{std::byte{1}}));
  BOOST_TEST(book->orders().rbegin()->second.cleared == 99U);
  BOOST_TEST(book->clears().floor == 3U);
  BOOST_TEST(book->clears().numbers.at(8_identity).heard == 99U);
  BOOST_TEST(book->clears().numbers.at(8_identity).carried_out == 98U);
  BOOST_TEST(book->departures().nodes.at("c") == 5U);
  BOOST_TEST((book->departures().closed == std::deque<std::uint64_t>{4}));
  BOOST_TEST(book->departures().is_incomplete);
}

BOOST_AUTO_TEST_CASE(a_book_that_could_not_be_written_is_still_to_be_written) {
  const test::scratch_folder folder;
  const std::filesystem::path place = folder / "state";
  std::filesystem::create_directory(place);
  auto book = removal_book::open(place / "book", 1);
  BOOST_REQUIRE(book);
  book->add(order_of(7, {{1, 2}}));
  std::filesystem::remove_all(place);
  BOOST_TEST(!book->write({}, {}));
  BOOST_TEST(book->is_changed());
  std::filesystem::create_directory(place);
  BOOST_TEST(book->write({}, {}).has_value());
  BOOST_TEST(!book->is_changed());
  BOOST_TEST(removal_book::open(place / "book", 1)->orders().size() == 1U);
}

BOOST_AUTO_TEST_CASE(the_names_of_other_nodes_are_read_by_the_next_worker_with_what_is_known_of_them) {
  const test::scratch_folder folder;
  const std::filesystem::path file = folder / "book";
  {
    auto book = removal_book::open(file, 1);
    BOOST_REQUIRE(book);
    for (const std::string name : {"b", "c", "d"}) book->note_here(name);
    book->note_away("d");
    book->note_away("c");
    book->note_settled("c");
    BOOST_TEST(book->is_changed());
    BOOST_REQUIRE(book->write({}, {}));
    book->note_here("b");
    book->note_away("c");
    book->note_settled("c");
    BOOST_TEST(!book->is_changed());
  }
  auto book = removal_book::open(file, 1);
  BOOST_REQUIRE(book);
  BOOST_REQUIRE_EQUAL(book->nodes().size(), 3U);
  BOOST_TEST((book->is_settled("c") && !book->is_settled("d") && !book->is_settled("b")));
  BOOST_TEST(book->nodes().at("d").departure < book->nodes().at("c").departure);
  BOOST_TEST(book->nodes().at("c").departure < book->nodes().at("b").departure);  // it is away until it is met
  book->note_here("c");
  BOOST_TEST(!book->is_settled("c"));
}

BOOST_AUTO_TEST_CASE(of_too_many_names_one_that_is_settled_goes_first_and_then_the_longest_away) {
  removal_book book;
  for (std::size_t i = 0; i < removal_book::most_nodes; ++i) book.note_here(std::to_string(i));
  BOOST_TEST(book.excess_node().empty());
  book.note_here("another");
  BOOST_TEST(book.excess_node().empty());  // all are here
  for (const std::string name : {"7", "3", "5"}) book.note_away(name);
  book.note_settled("5");
  for (const std::string name : {"5", "7", "3"}) {
    BOOST_TEST(book.excess_node() == name);
    book.forget_node(name);
    BOOST_TEST(book.excess_node().empty());
    book.note_here(name + " again");
  }
}

BOOST_AUTO_TEST_CASE(a_file_of_the_version_before_is_read) {
  const test::scratch_folder folder;
  const std::filesystem::path file = folder / "book";
  byte_writer writer;
  writer.put(std::uint64_t{0x6b6f6f626c766d72});
  writer.put(std::uint32_t{2});
  writer.put(std::uint64_t{3});  // the floor
  writer.put(std::uint32_t{0});  // clears
  writer.put(std::uint32_t{0});  // orders
  writer.put(std::uint32_t{2});  // names
  writer.put_text("b");
  writer.put_text("c");
  writer.put(std::uint32_t{1});  // write-offs
  writer.put_text("d");
  writer.put(std::uint64_t{5});
  writer.put(std::uint32_t{0});  // of those that are over
  writer.put(checksum_of(writer.bytes()));
  BOOST_REQUIRE(replace_whole(file, writer.bytes()));
  const auto book = removal_book::open(file, 1);
  BOOST_REQUIRE(book);
  BOOST_TEST(!book->was_damaged());
  BOOST_TEST((book->nodes().contains("b") && book->nodes().contains("c")));
  BOOST_TEST(book->departures().nodes.at("d") == 5U);
}

BOOST_AUTO_TEST_CASE(a_damaged_file_counts_as_a_clear_of_every_instance) {
  const test::scratch_folder folder;
  const std::filesystem::path file = folder / "book";
  BOOST_REQUIRE(removal_book::open(file, 1));
  const auto size = std::filesystem::file_size(file);
  for (std::uintmax_t at = 0; at < size; at += 3) {
    BOOST_REQUIRE(removal_book::open(file, 1));
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekg(static_cast<std::streamoff>(at));
    const int old = bytes.get();
    bytes.seekp(static_cast<std::streamoff>(at));
    bytes.put(static_cast<char>(old ^ 1));
    bytes.close();
    const auto book = removal_book::open(file, 55);
    BOOST_REQUIRE(book);
    BOOST_TEST(book->was_damaged());
    BOOST_TEST(book->clears().floor == 55U);
    std::filesystem::remove(file);
  }
}

BOOST_AUTO_TEST_CASE(a_clear_takes_the_place_of_what_it_covers_and_of_the_nodes_that_lack_that) {
  removal_book book;
  book.add(order_of(7, {{1, 2}}, {"b"}));
  book.add(order_of(8, {{1, 2}}, {"b"}));
  const auto number = book.add({.identity = 7_identity, .cleared = 5, .nodes = {"c"}});
  BOOST_REQUIRE_EQUAL(book.orders().size(), 2U);
  BOOST_TEST((book.find(number)->nodes == std::set<std::string>{"b", "c"}));
  BOOST_TEST(book.take_replaced().size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_clear_that_ends_late_leaves_what_began_after_it) {
  removal_book book;
  auto later = order_of(7, {{1, 2}}, {"b"});
  later.sequence = 2;
  const auto number = book.add(later);
  book.add({.identity = 7_identity, .cleared = 5, .nodes = {"b"}, .sequence = 1});
  BOOST_TEST(book.orders().size() == 2U);
  BOOST_TEST(book.find(number) != nullptr);
  BOOST_TEST(book.take_replaced().empty());
}

BOOST_AUTO_TEST_CASE(the_same_keys_again_are_one_order) {
  removal_book book;
  book.add(order_of(7, {{1, 2}}, {"b"}));
  const auto number = book.add(order_of(7, {{1, 2}}, {"c"}));
  BOOST_REQUIRE_EQUAL(book.orders().size(), 1U);
  BOOST_TEST((book.find(number)->nodes == std::set<std::string>{"b", "c"}));
}

BOOST_AUTO_TEST_CASE(an_order_that_all_nodes_have_confirmed_is_over) {
  removal_book book;
  const auto number = book.add(order_of(7, {{1, 2}}, {"b", "c"}));
  book.keep(number, {"c"});
  BOOST_TEST((book.find(number)->nodes == std::set<std::string>{"c"}));
  book.keep(number, {});
  BOOST_TEST(book.find(number) == nullptr);
}

BOOST_AUTO_TEST_CASE(where_each_instance_has_one_order_the_oldest_makes_room_and_is_counted) {
  removal_book book;
  for (std::uint64_t i = 0; i <= removal_book::most_orders; ++i)
    book.add(order_of(i, {{i, i}}), [](const auto&) { return 9; });
  BOOST_TEST(book.orders().size() == removal_book::most_orders);
  BOOST_TEST(book.dropped() == 1U);
  const auto replaced = book.take_replaced();
  BOOST_REQUIRE_EQUAL(replaced.size(), 1U);
  BOOST_TEST((replaced.front().identity == 0_identity));
  book.add(order_of(5, std::vector<block_key>(removal_book::most_keys)));
  BOOST_TEST(book.count(5_identity).removals == 0U);  // it has most keys
}

BOOST_AUTO_TEST_CASE(a_group_of_many_instances_drops_orders_of_its_own) {
  removal_book book;
  const auto order_in = [](std::uint64_t number, const std::string& group) {
    auto order = order_of(number, {{number, 1}});
    order.spec = spec_of(number, group);
    return order;
  };
  book.add(order_in(7, "small"));
  for (std::uint64_t i = 0; i < removal_book::most_orders + 8; ++i)
    book.add(order_in(100 + i, "large"), [](const auto&) { return 9; });
  BOOST_TEST(book.count(7_identity).removals == 1U);
  BOOST_TEST(book.count(100_identity).removals == 0U);
}

BOOST_AUTO_TEST_CASE(orders_that_fill_the_book_become_one_clear_of_their_instance) {
  removal_book book;
  std::vector<instance_identity> cleared;
  const auto next_clear = [&](const instance_identity& identity) {
    cleared.push_back(identity);
    return std::uint64_t{77};
  };
  book.add(order_of(7, {{1, 1}}, {"b"}), next_clear);
  for (std::uint64_t i = 0; i < removal_book::most_orders; ++i) book.add(order_of(8, {{i, i}}, {"c"}), next_clear);
  book.add(order_of(8, {{1, 2}}, {"d"}), next_clear);
  BOOST_TEST((cleared == std::vector<instance_identity>{8_identity}));
  BOOST_TEST(book.dropped() == 0U);
  BOOST_TEST(book.forced_clears() == 1U);
  BOOST_TEST(book.count(7_identity).removals == 1U);
  BOOST_REQUIRE_EQUAL(book.orders().size(), 3U);
  const auto clear = std::next(book.orders().begin())->second;
  BOOST_TEST((clear.identity == 8_identity));
  BOOST_TEST(clear.cleared == 77U);
  BOOST_TEST(clear.keys.empty());
  BOOST_TEST((clear.nodes == std::set<std::string>{"c"}));
}

BOOST_AUTO_TEST_CASE(keys_that_fill_the_book_become_one_clear_of_their_instance) {
  removal_book book;
  const auto kept_elsewhere = [](const auto&) { return std::uint64_t{0}; };
  book.add(order_of(7, {{1, 1}}), kept_elsewhere);
  const auto number = book.add(order_of(8, std::vector<block_key>(removal_book::most_keys)), kept_elsewhere);
  BOOST_TEST(book.find(number) == nullptr);
  BOOST_TEST(book.count(7_identity).removals == 1U);
  BOOST_TEST(book.count(8_identity).removals == 0U);
  BOOST_TEST(book.dropped() == 0U);
}

BOOST_AUTO_TEST_CASE(instances_that_an_earlier_worker_used_are_known_and_one_group_drops_none_of_another_one) {
  const test::scratch_folder folder;
  const auto small = spec_of(7, "small");
  {
    auto book = removal_book::open(folder / "book", 1);
    book->note_instance(7_identity, small);
    for (std::uint64_t i = 0; i < removal_book::most_spec_bytes / 200; ++i)
      book->note_instance(numbered_identity(100 + i), spec_of(i, "large", 200));
    BOOST_REQUIRE(book->write({}, {}));
  }
  const auto book = removal_book::open(folder / "book", 1);
  BOOST_TEST(!book->was_damaged());
  BOOST_REQUIRE(book->instances().contains(7_identity));
  BOOST_TEST((book->instances().at(7_identity).spec == small));
  BOOST_TEST(!book->instances().contains(100_identity));
  BOOST_TEST(book->instances().contains(numbered_identity(99 + removal_book::most_spec_bytes / 200)));
}

BOOST_AUTO_TEST_SUITE_END()
