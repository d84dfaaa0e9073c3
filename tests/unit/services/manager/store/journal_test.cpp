// The contract of every journal, and the rest of the one on a disk.
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "services/manager/store/memory_journal.hpp"
#include "services/manager/store/redis_journal.hpp"
#include "services/manager/store/rocks_journal.hpp"
#include "tests/support/redis_server.hpp"
#include "tests/unit/services/manager/own_folder.hpp"

namespace cenote::manager {

namespace {

using row_map = std::map<std::string, std::string>;

row_map rows_of(journal& rows, row_kind kind) {
  row_map all;
  const auto read = rows.read(kind, [&](std::string_view name, std::string_view value) {
    BOOST_TEST(all.emplace(name, value).second, "a row that comes twice: " << name);
  });
  BOOST_TEST_REQUIRE(read.has_value());
  return all;
}

void write(journal& rows, const std::vector<journal_row>& changes) {
  BOOST_TEST_REQUIRE(rows.write(changes).has_value());
}

struct memory_store {
  memory_journal rows;
  [[nodiscard]] journal& store() noexcept { return rows; }
};

std::unique_ptr<rocks_journal> open_in(const test::own_folder& folder) {
  auto opened = rocks_journal::open({.folder = (folder.path() / "rows").native(), .cache_bytes = 1U << 20U});
  BOOST_TEST_REQUIRE(opened.has_value());
  return std::move(*opened);
}

struct rocks_store {
  test::own_folder folder;
  std::unique_ptr<rocks_journal> rows = open_in(folder);
  [[nodiscard]] journal& store() noexcept { return *rows; }
};

struct redis_store {
  redis_store() { BOOST_TEST_REQUIRE(rows->raise_epoch().has_value()); }

  cenote::test::redis_server server;
  std::unique_ptr<redis_journal> rows =
      redis_journal::make({.access = {.address = {.path = server.socket(), .place = {}}},
                           .prefix = "test",
                           .timeout = std::chrono::minutes(1)})
          .value();
  [[nodiscard]] journal& store() noexcept { return *rows; }
};

using stores = std::tuple<memory_store, rocks_store, redis_store>;

}  // namespace

BOOST_AUTO_TEST_SUITE(journals)

BOOST_AUTO_TEST_CASE_TEMPLATE(rows_are_read_by_kind, Store, stores) {
  Store world;
  write(world.store(), {{.name = "e1", .value = "a"},
                        {.name = "r1", .value = "b"},
                        {.name = "m1", .value = "c"},
                        {.name = "m2", .value = ""},
                        {.name = "m", .value = "kind alone"}});
  BOOST_TEST((rows_of(world.store(), row_kind::extent) == row_map{{"e1", "a"}}));
  BOOST_TEST((rows_of(world.store(), row_kind::registry) == row_map{{"r1", "b"}}));
  BOOST_TEST((rows_of(world.store(), row_kind::mask) == row_map{{"m", "kind alone"}, {"m1", "c"}, {"m2", ""}}));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_batch_is_applied_in_its_order, Store, stores) {
  Store world;
  write(world.store(), {{.name = "e1", .value = "first"},
                        {.name = "e1", .value = "second"},
                        {.name = "e2", .value = "x"},
                        {.name = "e2"},
                        {.name = "e3"},
                        {.name = "e3", .value = "y"}});
  BOOST_TEST((rows_of(world.store(), row_kind::extent) == row_map{{"e1", "second"}, {"e3", "y"}}));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(a_row_that_is_not_there_may_be_erased, Store, stores) {
  Store world;
  write(world.store(), {{.name = "e1"}});
  write(world.store(), {});
  BOOST_TEST(rows_of(world.store(), row_kind::extent).empty());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(names_and_values_are_any_bytes, Store, stores) {
  Store world;
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const std::string name = "e" + all, zero("e\0\0", 3), large(3'000'000, '\xff');
  write(world.store(), {{.name = name, .value = all}, {.name = zero, .value = large}});
  BOOST_TEST((rows_of(world.store(), row_kind::extent) == row_map{{name, all}, {zero, large}}));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(each_epoch_is_higher_and_no_row, Store, stores) {
  Store world;
  const auto first = world.store().raise_epoch(), second = world.store().raise_epoch();
  BOOST_TEST_REQUIRE((first && second));
  BOOST_TEST(*first > 0U);
  BOOST_TEST(*second > *first);
  for (const row_kind kind : {row_kind::registry, row_kind::extent, row_kind::mask}) {
    BOOST_TEST(rows_of(world.store(), kind).empty());
  }
}

BOOST_AUTO_TEST_CASE(rows_and_the_epoch_outlive_a_database_that_is_closed) {
  rocks_store store;
  const auto epoch = store.rows->raise_epoch();
  BOOST_TEST_REQUIRE(epoch.has_value());
  write(*store.rows, {{.name = "e1", .value = "a"}, {.name = "e2", .value = "b"}});
  write(*store.rows, {{.name = "e2"}});
  store.rows.reset();
  store.rows = open_in(store.folder);
  BOOST_TEST((rows_of(*store.rows, row_kind::extent) == row_map{{"e1", "a"}}));
  const auto next = store.rows->raise_epoch();
  BOOST_TEST_REQUIRE(next.has_value());
  BOOST_TEST(*next > *epoch);
}

BOOST_AUTO_TEST_CASE(a_folder_is_opened_once_at_a_time) {
  rocks_store store;
  const auto second = rocks_journal::open({.folder = (store.folder.path() / "rows").native()});
  BOOST_REQUIRE(!second);
  BOOST_TEST((second.error().code() == error_code::system));
  write(*store.rows, {{.name = "e1", .value = "a"}});
  BOOST_TEST(rows_of(*store.rows, row_kind::extent).size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_database_of_another_format_is_refused_each_time) {
  rocks_store store;
  write(*store.rows, {{.name = "e1", .value = "a"}, {.name = "#format", .value = "another 7"}});
  store.rows.reset();
  for (int i = 0; i < 2; ++i) {
    const auto opened = rocks_journal::open({.folder = (store.folder.path() / "rows").native()});
    BOOST_REQUIRE(!opened);
    BOOST_TEST((opened.error().code() == error_code::layout_mismatch));
  }
}

BOOST_AUTO_TEST_CASE(a_database_with_rows_and_no_format_is_refused) {
  rocks_store store;
  write(*store.rows, {{.name = "e1", .value = "a"}, {.name = "#format"}});
  store.rows.reset();
  const auto opened = rocks_journal::open({.folder = (store.folder.path() / "rows").native()});
  BOOST_REQUIRE(!opened);
  BOOST_TEST((opened.error().code() == error_code::layout_mismatch));
}

BOOST_AUTO_TEST_CASE(an_epoch_that_is_damaged_or_the_last_is_refused) {
  rocks_store store;
  write(*store.rows, {{.name = "#epoch", .value = "abc"}});
  auto raised = store.rows->raise_epoch();
  BOOST_REQUIRE(!raised);
  BOOST_TEST((raised.error().code() == error_code::layout_mismatch));
  write(*store.rows, {{.name = "#epoch", .value = "\xff\xff\xff\xff"}});
  raised = store.rows->raise_epoch();
  BOOST_REQUIRE(!raised);
  BOOST_TEST((raised.error().code() == error_code::limit_exceeded));
}

BOOST_AUTO_TEST_CASE(a_folder_that_cannot_be_made_is_an_error) {
  const auto opened = rocks_journal::open({.folder = "/proc/no/such/folder"});
  BOOST_REQUIRE(!opened);
  BOOST_TEST((opened.error().code() == error_code::system));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
