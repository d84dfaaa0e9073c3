#include <boost/test/unit_test.hpp>
#include <optional>
#include <vector>

#include "tests/support/allocations.hpp"
#include "tests/unit/services/manager/index/index_world.hpp"

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(lookups)

namespace {

using parts = std::vector<found_part>;

/// A world with keys 1 to 50 in storage 0, but for some.
struct row_world : index_world {
  explicit row_world(const std::vector<std::uint64_t>& absent) {
    const std::uint32_t all = extent(0);
    for (std::uint64_t key = 1; key <= 50; ++key) {
      if (std::ranges::find(absent, key) == absent.end()) put(key, all);
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_prefix_ends_at_the_first_key_that_is_not_serving) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  for (std::uint64_t key = 1; key <= 50; ++key) w.put(key, extent, key == 41 ? writing : serving);
  w.index.change_state(w.record(30), extent, serving, deleting);
  BOOST_TEST(w.match(row(1, 50)) == 29U);
  BOOST_TEST(w.match(row(31, 20)) == 10U);
  BOOST_TEST(w.match(row(41, 9)) == 0U);
  BOOST_TEST(w.match(row(60, 7)) == 0U);
  BOOST_TEST(w.match({}) == 0U);
  BOOST_TEST(w.match(row(1, 3)) == 3U);
  BOOST_TEST((w.parts(2) == parts{{.extent = 100, .specs = 1, .wrote_at = 7, .position = 3}}));
  BOOST_TEST(w.answer.keys[2].record == w.record(3));
}

BOOST_AUTO_TEST_CASE(parts_bring_the_checksums_of_their_blocks) {
  index_world w;
  const std::uint32_t plain = w.extent(0), summed = w.extent(0);
  w.index.extents().set_checksums(summed, {.specs = 0b11, .values = {0, 0, 10, 11, 20, 21, 30, 31}});
  w.put(1, plain);
  w.put(2, summed, serving, 0b11);
  w.put(3, summed, serving, 0b10);
  BOOST_TEST(w.match(row(1, 3)) == 3U);
  BOOST_TEST(w.parts(0)[0].checksums == no_checksums);
  const auto words_of = [&](std::size_t key) {
    const auto first = w.answer.checksums.begin() + w.parts(key)[0].checksums;
    return std::vector<std::uint64_t>(first, first + 3);
  };
  BOOST_TEST((words_of(1) == std::vector<std::uint64_t>{0b11, 20, 21}));
  BOOST_TEST((words_of(2) == std::vector<std::uint64_t>{0b11, 30, 31}));
  w.index.read_each(row(3, 1), w.order, w.answer);
  BOOST_TEST((words_of(0) == std::vector<std::uint64_t>{0b11, 30, 31}));
}

BOOST_AUTO_TEST_CASE(both_halves_of_a_key_count) {
  index_world w;
  const std::uint32_t extent = w.extent(0);
  for (const std::uint64_t high : {0U, 1U, 2U}) {
    w.index.add_location(w.index.add({.low = 7, .high = high}, no_record),
                         {.extent = extent,
                          .position = static_cast<std::uint16_t>(high),
                          .state = serving,
                          .set = w.index.sets().number_of(1).value()});
  }
  BOOST_TEST(w.match({{7, 2}, {7, 0}, {7, 1}, {7, 3}}) == 3U);
  BOOST_TEST(w.parts(0)[0].position == 2U);
  BOOST_TEST(w.parts(1)[0].position == 0U);
}

BOOST_AUTO_TEST_CASE(parts_come_by_the_rank_of_their_storage_with_the_specs_that_those_before_lack) {
  index_world w;
  w.order.rank[3] = 2;
  w.order.rank[4] = 1;
  w.order.rank[5] = 2;
  w.put(5, w.extent(3), serving, 0b0111);  // extent 100
  w.put(5, w.extent(5), serving, 0b1100);  // equal rank, after it
  w.put(5, w.extent(4), serving, 0b0011);
  BOOST_TEST((w.parts_of(5) == parts{{.extent = 102, .specs = 0b0011, .wrote_at = 7, .position = 5, .storage = 4},
                                     {.extent = 100, .specs = 0b0100, .wrote_at = 7, .position = 5, .storage = 3},
                                     {.extent = 101, .specs = 0b1000, .wrote_at = 7, .position = 5, .storage = 5}}));
  w.order.rank[3] = 0;
  BOOST_TEST((w.parts_of(5) == parts{{.extent = 100, .specs = 0b0111, .wrote_at = 7, .position = 5, .storage = 3},
                                     {.extent = 101, .specs = 0b1000, .wrote_at = 7, .position = 5, .storage = 5}}));
  w.order.rank[3] = w.order.rank[5] = read_order::unusable;
  BOOST_TEST((w.parts_of(5) == parts{{.extent = 102, .specs = 0b0011, .wrote_at = 7, .position = 5, .storage = 4}}));
  w.order.rank[4] = read_order::unusable;
  BOOST_TEST(w.parts_of(5).empty());
  BOOST_TEST(w.match(row(5, 1)) == 0U);
}

BOOST_AUTO_TEST_CASE(each_key_must_have_the_specs_that_all_need_over_all_its_parts) {
  index_world w;
  const std::uint32_t near = w.extent(0);
  const std::uint32_t far = w.extent(1);
  for (std::uint64_t key = 1; key <= 20; ++key) {
    w.put(key, near, serving, 0b01);
    if (key != 15) w.put(key, far, key == 18 ? writing : serving, 0b10);
  }
  BOOST_TEST(w.match(row(1, 20)) == 20U);
  BOOST_TEST(w.match(row(1, 20), {.all = 0b11}) == 14U);
  BOOST_TEST(w.match(row(16, 5), {.all = 0b11}) == 2U);
  BOOST_TEST(w.match(row(16, 5), {.all = 0b01}) == 5U);
  BOOST_TEST(w.match(row(16, 5), {.all = 0b100}) == 0U);
  w.order.rank[1] = read_order::unusable;
  BOOST_TEST(w.match(row(1, 20), {.all = 0b11}) == 0U);
}

BOOST_AUTO_TEST_CASE(a_prefix_is_cut_back_to_the_last_key_with_the_specs_that_only_some_have) {
  index_world w;  // spec 1: the state of a recurrent model, after some blocks only
  const std::uint32_t extent = w.extent(0);
  for (std::uint64_t key = 1; key <= 20; ++key) w.put(key, extent, serving, key % 8 == 0 ? 0b11 : 0b01);
  BOOST_TEST(w.match(row(1, 20), {.all = 0b01, .last = 0b10}) == 16U);
  BOOST_TEST(w.answer.parts.size() == 16U);
  BOOST_TEST(w.match(row(1, 15), {.all = 0b01, .last = 0b10}) == 8U);
  BOOST_TEST(w.match(row(1, 7), {.all = 0b01, .last = 0b10}) == 0U);
  BOOST_TEST(w.answer.parts.empty());
  BOOST_TEST(w.match(row(8, 1), {.all = 0b01, .last = 0b11}) == 1U);
}

BOOST_AUTO_TEST_CASE(a_window_is_the_last_row_of_present_keys) {
  struct window_row {
    std::vector<std::uint64_t> absent{};
    std::size_t window = 1;
    std::optional<std::size_t> begin{};
  };
  for (const window_row& each : std::vector<window_row>{
           {{}, 8, 42},
           {{}, 50, 0},
           {{}, 51, std::nullopt},
           {{}, 0, std::nullopt},
           {{50}, 8, 41},
           {{50}, 49, 0},
           {{50}, 50, std::nullopt},
           {{46, 40, 33}, 8, 24},
           {{46, 40, 33}, 4, 46},
           {{46, 40, 33}, 5, 40},
           {{46, 40, 33}, 6, 33},
           {{46, 40, 33}, 7, 25},
           {{43, 36, 29, 22, 15, 8, 1}, 7, 43},
           {{50, 43, 36, 29, 22, 15, 8, 1}, 7, std::nullopt},
           {{50, 43, 36, 29, 22, 15, 8, 1}, 6, 43},
           {{2}, 49, std::nullopt},
           {{2}, 48, 2},
           {{1}, 49, 1},
       }) {
    row_world w(each.absent);
    const auto begin = w.index.match_window(row(1, 50), each.window, w.order, w.answer);
    BOOST_TEST((begin == each.begin));
    BOOST_REQUIRE(w.answer.keys.size() == (begin ? each.window : 0));
    for (std::size_t i = 0; i < w.answer.keys.size(); ++i) {
      BOOST_TEST(w.parts(i).size() == 1U);
      BOOST_TEST(w.parts(i)[0].position == *begin + i + 1);
    }
  }
}

BOOST_AUTO_TEST_CASE(each_key_has_an_entry_though_it_is_absent) {
  row_world w({2, 49});
  w.put(49, w.extent(0), writing);
  w.index.read_each(row(0, 52), w.order, w.answer);
  BOOST_REQUIRE(w.answer.keys.size() == 52U);
  for (std::uint64_t key = 0; key < 52; ++key) {
    const bool is_present = key >= 1 && key <= 50 && key != 2 && key != 49;
    BOOST_TEST(w.parts(key).size() == (is_present ? 1U : 0U));
    BOOST_TEST(w.answer.keys[key].record == (is_present ? w.record(key) : no_record));
  }
}

BOOST_AUTO_TEST_CASE(states_are_those_of_all_locations_in_all_storages) {
  index_world w;
  w.order.rank.fill(read_order::unusable);
  w.put(2, w.extent(9), writing, 0b10);
  w.put(1, w.extent(8, 0), deleting, 0b01);
  w.put(1, w.extent(9), serving, 0b11);
  std::vector<key_state> states{{}, {}};
  w.index.read_states(row(0, 4), states);
  const std::vector<key_state> expected{
      {.key = 1, .state = deleting, .storage = 8, .position = 1, .extent = 101, .specs = 0b01, .wrote_at = 0},
      {.key = 1, .state = serving, .storage = 9, .position = 1, .extent = 102, .specs = 0b11, .wrote_at = 7},
      {.key = 2, .state = writing, .storage = 9, .position = 2, .extent = 100, .specs = 0b10, .wrote_at = 7}};
  BOOST_TEST((states == expected));
}

BOOST_AUTO_TEST_CASE(a_question_allocates_nothing_once_its_answer_has_memory) {
  row_world w({});
  std::vector<key_state> states;
  std::vector<std::uint32_t> records;
  const std::vector<cache_key> keys = row(1, 50);
  const auto ask = [&] {
    (void)w.index.match_prefix(keys, w.order, {}, w.answer);
    (void)w.index.match_window(keys, 8, w.order, w.answer);
    w.index.read_each(keys, w.order, w.answer);
    w.index.read_states(keys, states);
    (void)w.index.count_prefix(keys, w.order, {}, records);
  };
  ask();
  BOOST_TEST(cenote::test::allocations_during(ask).calls == 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
