#include <atomic>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <thread>

#include "tests/support/allocations.hpp"
#include "tests/unit/services/indexer/forest/forest_world.hpp"

namespace cenote::indexer::test {

BOOST_AUTO_TEST_SUITE(forest_readers)

BOOST_AUTO_TEST_CASE(a_question_allocates_nothing) {
  world w;
  const numbers keys = chain(1, 1000);
  for (std::size_t i = 0; i < 100; ++i) {
    w.store(std::span(keys).first(10 * i + 10), w.open("p" + std::to_string(i), static_cast<medium_number>(i % 2)));
  }
  (void)ask(w.reader, keys);
  std::size_t rows = 0;
  const auto cost = cenote::test::allocations_during(
      [&] { w.reader.walk(keys, [&](std::span<const prefix_row> all) { rows = all.size(); }); });
  BOOST_TEST(cost.calls == 0U);
  BOOST_TEST(rows == 100U);
}

BOOST_AUTO_TEST_CASE(what_a_reader_sees_stays_until_it_leaves) {
  world w(std::size_t{2} << 20);
  const holder a = w.open("a");
  const numbers keys = chain(1, 600);
  w.store(keys, a);
  w.store(std::span(keys).first(50), w.open("b"));
  w.reader.walk(keys, [&](std::span<const prefix_row> rows) {
    w.index.clear(a);
    while (!w.index.sweep(1000)) {
    }
    w.index.reclaim();
    const holder c = w.open("c");
    for (std::uint64_t i = 1; i < 500; ++i)
      w.store(chain(i * 1000, 50), c);  // less than memory: the writer waits there
    BOOST_TEST(rows.size() == 2U);
    for (const prefix_row& row : rows) BOOST_TEST(row.blocks == (row.member->pod() == "a" ? 600U : 50U));
  });
  w.index.reclaim();
  w.index.reclaim();
  BOOST_TEST(w.index.holders().find({.pod = "a"}) == 0U);
}

BOOST_AUTO_TEST_CASE(a_reader_that_does_not_leave_costs_neither_new_blocks_nor_old_ones) {
  world w(std::size_t{2} << 20);
  const holder old = w.open("old");
  std::uint64_t seed = 0;
  while (w.index.figures().evicted == 0) w.store(chain(++seed * 1000, 50), old);
  const std::uint64_t evicted = w.index.figures().evicted;
  const holder fresh = w.open("fresh");
  constexpr std::uint64_t chains = 500;
  std::atomic<std::uint64_t> stored = 0;
  std::thread writer;
  w.reader.walk(chain(seed * 1000, 50), [&](std::span<const prefix_row> rows) {
    BOOST_TEST(rows.size() == 1U);
    writer = std::thread([&] {
      for (; stored < chains; ++stored) w.store(chain((seed + stored + 1) * 1000, 50), fresh);
    });
    // Leaves when the writer goes on no more.
    for (std::uint64_t last = chains + 1; stored != last && stored < chains;) {
      last = stored;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  writer.join();
  BOOST_TEST(w.index.figures().refused == 0U);
  BOOST_TEST(w.index.figures().evicted - evicted < 2 * chains * 50);
  BOOST_TEST(blocks_of(w.reader, chain((seed + chains) * 1000, 50), "fresh") == 50U);
}

BOOST_AUTO_TEST_CASE(readers_are_bounded) {
  world w;
  std::vector<prefix_reader> readers;
  while (auto one = prefix_reader::open(w.index)) readers.push_back(std::move(*one));
  BOOST_TEST(readers.size() == epoch_table::most_readers - 1);
  readers.pop_back();
  BOOST_TEST(prefix_reader::open(w.index).has_value());
}

BOOST_AUTO_TEST_CASE(two_readers_beside_a_writer_see_what_was_there_before_or_after_each_change) {
  world w(std::size_t{64} << 20);
  const numbers keys = chain(1, 900);
  w.store(keys, w.open("fixed"));
  const holder longer = w.open("longer");
  w.store(std::span(keys).first(100), longer);
  std::atomic<bool> is_done = false;
  std::atomic<int> faults = 0;
  const auto read = [&] {
    auto reader = prefix_reader::open(w.index);
    while (!is_done.load()) {
      reader->walk(keys, [&](std::span<const prefix_row> rows) {
        for (const prefix_row& row : rows) {
          if (row.member->pod() == "fixed" && row.blocks != 900) ++faults;
          if (row.member->pod() == "longer" && row.blocks < 100) ++faults;
        }
      });
      reader->lookup(std::span(keys).first(50), [&](std::size_t, std::span<const block_holder> holders) {
        if (holders.empty()) ++faults;
      });
    }
  };
  std::thread first(read);
  std::thread second(read);
  for (std::uint64_t i = 0; i < 3000; ++i) {
    w.store(keys, longer);
    w.remove(std::span(keys).subspan(100 + i % 700), longer);
    if (i % 5 == 0) w.remove(std::span(keys).subspan(100), longer);
    const holder passing = w.open("passing" + std::to_string(i % 9));
    w.store(std::span(keys).first(i % 900 + 1), passing);
    w.store(chain(1'000'000 + i * 1000, 60), passing);
    if (i % 7 == 0) w.index.clear(passing);
    (void)w.index.sweep(100);
    w.index.advance_clock(static_cast<std::uint32_t>(i + 1));
  }
  is_done = true;
  first.join();
  second.join();
  BOOST_TEST(faults.load() == 0);
  BOOST_TEST(blocks_of(w.reader, keys, "fixed") == 900U);
}

BOOST_AUTO_TEST_CASE(readers_survive_a_writer_that_evicts_all_the_time) {
  world w(std::size_t{2} << 20);
  std::atomic<bool> is_done = false;
  std::atomic<std::uint64_t> found = 0;
  const auto read = [&] {
    auto reader = prefix_reader::open(w.index);
    for (std::uint64_t i = 0; !is_done.load(); i = (i + 7) % 4000) {
      const numbers keys = chain(i * 1000, 100);
      reader->walk(keys, [&](std::span<const prefix_row> rows) {
        for (const prefix_row& row : rows) found += row.blocks <= 100 && row.member->pod().starts_with("pod") ? 1U : 0U;
      });
    }
  };
  std::thread first(read);
  std::thread second(read);
  for (std::uint64_t i = 0; i < 4000; ++i) w.store(chain(i * 1000, 100), w.open("pod" + std::to_string(i % 20)));
  is_done = true;
  first.join();
  second.join();
  BOOST_TEST(w.index.figures().evicted > 0U);
  BOOST_TEST(w.index.bytes() <= (std::size_t{2} << 20));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer::test
