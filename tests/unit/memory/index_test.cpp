#include "memory/index.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <boost/test/unit_test.hpp>
#include <mutex>
#include <random>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "tests/support/step_cost.hpp"

namespace cenote::memory {

namespace {

constexpr std::uint64_t scale = cenote::testing::step_cost;

block_key key_of(std::uint64_t n) {
  const auto run = std::as_bytes(std::span(&n, 1));
  return reduce_key(run, 0);
}

/// A value that says which key it belongs to, in its `round`-th publication.
std::uint64_t value_of(std::uint64_t n, std::uint64_t round = 1) {
  return index_value::make(block_ref(static_cast<std::uint32_t>(n >> 18) + 1, static_cast<std::uint32_t>(n & 0x3ffff)),
                           round * 2);
}
std::uint64_t number_in(std::uint64_t value) {
  const block_ref ref = index_value::ref(value);
  return (std::uint64_t{ref.slab() - 1} << 18) | ref.block();
}

index_writer fresh() {
  auto memory = shared_file::create("index", index_segment_bytes);
  BOOST_REQUIRE(memory.has_value());
  auto writer = index_writer::create(std::move(*memory));
  BOOST_REQUIRE(writer.has_value());
  return std::move(*writer);
}

index_writer opened(const index_writer& other) {
  auto memory = shared_file::adopt(std::move(*other.file().fd().duplicate()), index_segment_bytes);
  BOOST_REQUIRE(memory.has_value());
  auto writer = index_writer::open(std::move(*memory));
  BOOST_REQUIRE(writer.has_value());
  return std::move(*writer);
}

std::uint64_t allocated(const index_writer& index) {
  struct stat status {};
  ::fstat(index.file().fd().get(), &status);
  return static_cast<std::uint64_t>(status.st_blocks) * 512;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(index_of_an_instance)

BOOST_AUTO_TEST_CASE(what_was_inserted_is_found_and_what_was_erased_is_not) {
  auto writer = fresh();
  BOOST_TEST(writer.find(key_of(1)) == index_value::empty);
  BOOST_TEST(writer.insert(key_of(1), value_of(1)).has_value());
  BOOST_TEST(writer.insert(key_of(2), value_of(2)).has_value());
  BOOST_TEST(writer.find(key_of(1)) == value_of(1));
  BOOST_TEST(writer.insert(key_of(1), value_of(1, 2)).has_value());
  BOOST_TEST(writer.find(key_of(1)) == value_of(1, 2));
  BOOST_TEST(writer.size() == 2U);
  writer.erase(key_of(1));
  writer.erase(key_of(1));
  writer.erase(key_of(77));
  BOOST_TEST(writer.find(key_of(1)) == index_value::empty);
  BOOST_TEST(writer.find(key_of(2)) == value_of(2));
  BOOST_TEST(writer.size() == 1U);
}

BOOST_AUTO_TEST_CASE(keys_of_one_home_slot_are_probed_past_tombstones) {
  auto writer = fresh();
  for (std::uint64_t lo = 1; lo <= 200; ++lo) BOOST_REQUIRE(writer.insert({5, lo}, value_of(lo)).has_value());
  for (std::uint64_t lo = 1; lo <= 200; lo += 2) writer.erase({5, lo});
  for (std::uint64_t lo = 2; lo <= 200; lo += 2) BOOST_REQUIRE(writer.find({5, lo}) == value_of(lo));
  for (std::uint64_t lo = 2; lo <= 200; lo += 2) BOOST_REQUIRE(writer.insert({5, lo}, value_of(lo, 2)).has_value());
  BOOST_TEST(writer.size() == 100U);  // replaced, not doubled
  for (std::uint64_t lo = 1; lo <= 200; lo += 2) BOOST_REQUIRE(writer.find({5, lo}) == index_value::empty);
  // The last home slot wraps around to the first.
  for (std::uint64_t lo = 1; lo <= 50; ++lo)
    BOOST_REQUIRE(writer.insert({~std::uint64_t{0}, lo}, value_of(lo)).has_value());
  for (std::uint64_t lo = 1; lo <= 50; ++lo) BOOST_REQUIRE(writer.find({~std::uint64_t{0}, lo}) == value_of(lo));
}

BOOST_AUTO_TEST_CASE(it_does_what_a_map_does) {
  auto writer = fresh();
  std::unordered_map<std::uint64_t, std::uint64_t> model;
  std::mt19937_64 random(1);
  for (std::uint64_t step = 0; step < 400'000 / scale; ++step) {
    const std::uint64_t n = random() % (step < 200'000 ? 30'000 : 500);
    if (random() % 3 != 0) {
      const std::uint64_t value = value_of(n, step + 1);
      BOOST_REQUIRE(writer.insert(key_of(n), value).has_value());
      model[n] = value;
    } else {
      writer.erase(key_of(n));
      model.erase(n);
    }
    BOOST_REQUIRE(writer.size() == model.size());
  }
  for (std::uint64_t n = 0; n < 30'000; ++n) {
    BOOST_REQUIRE(writer.find(key_of(n)) == (model.contains(n) ? model[n] : index_value::empty));
  }
}

BOOST_AUTO_TEST_CASE(a_million_inserts_never_fail_and_take_the_memory_that_was_promised) {
  auto writer = fresh();
  const std::uint64_t n = 1'000'000 / scale;
  std::uint64_t most = 0;
  for (std::uint64_t k = 0; k < n; ++k) {
    BOOST_REQUIRE(writer.insert(key_of(k), value_of(k)).has_value());
    if (k % 4096 == 0) {
      BOOST_REQUIRE(writer.find(key_of(k / 2)) == value_of(k / 2));
      most = std::max(most, writer.slots() * sizeof(index_entry) / (k + index_min_slots));
    }
  }
  BOOST_TEST(writer.size() == n);
  for (std::uint64_t k = 0; k < n; ++k) BOOST_REQUIRE(writer.find(key_of(k)) == value_of(k));
  BOOST_TEST_MESSAGE("index bytes a key: " << allocated(writer) / n << " at the end, " << most << " at most");
  BOOST_TEST(allocated(writer) / n <= 110U);
  BOOST_TEST(most <= 130U);
}

BOOST_AUTO_TEST_CASE(turnover_at_a_constant_size_takes_no_more_memory) {
  auto writer = fresh();
  const std::uint64_t live = 10'000;
  for (std::uint64_t k = 0; k < 1'000'000 / scale; ++k) {
    BOOST_REQUIRE(writer.insert(key_of(k), value_of(k)).has_value());
    if (k >= live) writer.erase(key_of(k - live));
  }
  BOOST_TEST(writer.size() == live);
  BOOST_TEST(allocated(writer) < live * 128 + 64 * page_bytes);
}

BOOST_AUTO_TEST_CASE(room_can_be_made_at_once) {
  auto writer = fresh();
  BOOST_TEST(writer.reserve(100'000).has_value());
  const std::uint64_t slots = writer.slots();
  for (std::uint64_t k = 0; k < 100'000; ++k) BOOST_REQUIRE(writer.insert(key_of(k), value_of(k)).has_value());
  BOOST_TEST(writer.slots() == slots);
  BOOST_TEST(!writer.migrating());
}

BOOST_AUTO_TEST_CASE(holes_and_empty_segments_are_misses) {
  const auto empty = index_memory::create(std::move(*shared_file::create("index", index_segment_bytes)));
  BOOST_REQUIRE(empty.has_value());
  BOOST_TEST(index_reader(empty->tables).find(key_of(1)) == index_value::empty);
  auto writer = fresh();
  for (std::uint64_t k = 0; k < 300; ++k) BOOST_REQUIRE(writer.insert(key_of(k), value_of(k)).has_value());
  writer.file().punch(page_bytes, index_min_slots * sizeof(index_entry));
  for (std::uint64_t k = 0; k < 300; ++k) BOOST_REQUIRE(writer.find(key_of(k)) == index_value::empty);
}

BOOST_AUTO_TEST_CASE(a_growth_ends_without_further_writes_when_it_is_asked_to) {
  auto writer = fresh();
  std::uint64_t n = 0;
  for (; !writer.migrating(); ++n) BOOST_REQUIRE(writer.insert(key_of(n), value_of(n)).has_value());
  for (int turn = 0; writer.migrating() && turn < 1000; ++turn) writer.migrate(7);
  BOOST_TEST(!writer.migrating());
  for (std::uint64_t k = 0; k < n; ++k) BOOST_REQUIRE(writer.find(key_of(k)) == value_of(k));
  writer.migrate(7);
  BOOST_TEST(writer.size() == n);
}

BOOST_AUTO_TEST_CASE(glances_from_home_on_see_what_a_find_sees) {
  auto writer = fresh();
  for (std::uint64_t n = 0; n < 700; ++n) BOOST_REQUIRE(writer.insert(key_of(n), value_of(n)).has_value());
  for (std::uint64_t n = 0; n < 100; ++n) writer.erase(key_of(n * 7));
  const index_reader reader = writer.reader();
  const auto table = reader.newest();
  std::uint64_t seen = 0;
  for (std::uint64_t n = 0; n < 1400; ++n) {
    const std::uint64_t value = reader.find(key_of(n));
    const auto* place = table.home(key_of(n));
    std::uint64_t glanced = index_value::empty;
    // Around the end of the table, too: some homes are in its last places.
    for (std::uint64_t i = 0; i < table.slots && glanced == index_value::empty; i += 2) {
      glanced = table.glance(place, key_of(n));
      place = table.advance(place, 2);
    }
    BOOST_REQUIRE(glanced == value);
    BOOST_REQUIRE(table.scan(table.home(key_of(n)), key_of(n), static_cast<int>(table.slots)) == value);
    seen += value == index_value::empty ? 0U : 1U;
  }
  BOOST_TEST(seen == 600U);
}

BOOST_AUTO_TEST_CASE(a_state_word_that_makes_no_sense_is_a_miss) {
  auto writer = fresh();
  BOOST_REQUIRE(writer.insert(key_of(1), value_of(1)).has_value());
  auto& header = writer.memory().header();
  header.tables[7].offset.store(index_segment_bytes - 24);
  header.tables[7].slots.store(1000);
  for (const std::uint64_t state : {0xff07ULL, 0xff63ULL, 0x0707ULL, ~0ULL, 0xff41ULL}) {
    header.state.store(state);
    BOOST_TEST(writer.find(key_of(1)) == index_value::empty);
    const index_reader reader = writer.reader();
    const auto table = reader.newest();
    const auto* home = table.home(key_of(1));
    index_reader::prefetch(home);
    BOOST_TEST(table.glance(home, key_of(1)) == index_value::empty);
    BOOST_TEST(table.glance(table.advance(home, 2), key_of(1)) == index_value::empty);
    BOOST_TEST(table.scan(table.advance(home, 2), key_of(1), 30) == index_value::empty);
  }
}

BOOST_AUTO_TEST_CASE(readers_never_miss_a_key_that_is_there_nor_get_the_value_of_another) {
  auto writer = fresh();
  constexpr std::uint64_t stable = 300;
  for (std::uint64_t n = 0; n < stable; ++n) BOOST_REQUIRE(writer.insert(key_of(n), value_of(n)).has_value());
  std::atomic<bool> done{false};
  std::atomic<std::uint64_t> missed{0}, wrong{0}, looks{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&, r] {
      const index_reader reader = writer.reader();
      std::mt19937_64 random(static_cast<std::uint64_t>(r));
      std::uint64_t count = 0;
      while (!done.load(std::memory_order_relaxed)) {
        const std::uint64_t n = random() % stable;
        const auto table = reader.newest();
        const std::uint64_t seen = table.glance(table.home(key_of(n)), key_of(n));
        if (seen != index_value::empty && number_in(seen) != n) ++wrong;
        const std::uint64_t value = reader.find(key_of(n));
        if (value == index_value::empty) {
          ++missed;
        } else if (number_in(value) != n) {
          ++wrong;
        }
        const std::uint64_t any = stable + random() % 60'000;
        const std::uint64_t other = reader.find(key_of(any));
        if (other != index_value::empty && number_in(other) != any) ++wrong;
        ++count;
      }
      looks += count;
    });
  }
  std::mt19937_64 random(99);
  std::uint64_t round = 1;
  for (int wave = 0; wave < 6; ++wave) {  // grows, shrinks, grows again
    for (std::uint64_t i = 0; i < 60'000 / scale; ++i) {
      const std::uint64_t n = stable + random() % 60'000;
      if (wave % 2 == 0) {
        BOOST_REQUIRE(writer.insert(key_of(n), value_of(n, ++round)).has_value());
      } else {
        writer.erase(key_of(n));
      }
      if (i % 16 == 0) {  // a pinned victim that stays
        const std::uint64_t kept = random() % stable;
        BOOST_REQUIRE(writer.insert(key_of(kept), value_of(kept, ++round)).has_value());
      }
    }
  }
  done = true;
  for (auto& each : readers) each.join();
  BOOST_TEST_MESSAGE(looks.load() << " looks");
  BOOST_TEST(missed.load() == 0U);
  BOOST_TEST(wrong.load() == 0U);
}

BOOST_AUTO_TEST_CASE(no_single_operation_stalls_the_writer_after_a_clear) {
  auto writer = fresh();
  const std::uint64_t n = 1'000'000 / scale;
  for (std::uint64_t k = 0; k < n; ++k) BOOST_REQUIRE(writer.insert(key_of(k), value_of(k)).has_value());
  for (std::uint64_t k = 0; k < n; ++k) writer.erase(key_of(k));
  double worst = 0;
  for (std::uint64_t k = n; k < n + n / 2; ++k) {
    const auto start = std::chrono::steady_clock::now();
    BOOST_REQUIRE(writer.insert(key_of(k), value_of(k)).has_value());
    worst =
        std::max(worst, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  BOOST_TEST_MESSAGE("slowest insert after a clear of " << n << " keys: " << worst << " us");
}

// ---------------------------------------------------------------------------------------------- restarts

BOOST_AUTO_TEST_CASE(an_index_that_another_worker_left_goes_on) {
  std::mt19937_64 random(4);
  for (int round = 0; round < 40; ++round) {
    auto dead = fresh();
    std::unordered_map<std::uint64_t, std::uint64_t> model;
    const std::uint64_t steps = random() % 6'000;
    for (std::uint64_t step = 0; step < steps; ++step) {
      const std::uint64_t n = random() % 4'000;
      if (random() % 4 != 0) {
        BOOST_REQUIRE(dead.insert(key_of(n), value_of(n, step + 1)).has_value());
        model[n] = value_of(n, step + 1);
      } else {
        dead.erase(key_of(n));
        model.erase(n);
      }
    }
    auto next = opened(dead);
    std::unordered_set<std::uint64_t> seen;
    std::mutex mutex;
    next.reconcile([&](const block_key& key, std::uint64_t value) {
      const std::lock_guard lock(mutex);
      const std::uint64_t n = number_in(value);
      return key == key_of(n) && n % 5 != 0 && model.contains(n) && model[n] == value && seen.insert(n).second;
    });
    BOOST_REQUIRE(!next.migrating());
    std::uint64_t live = 0;
    for (std::uint64_t n = 0; n < 4'000; ++n) {
      const bool there = n % 5 != 0 && model.contains(n);
      live += there ? 1 : 0;
      BOOST_REQUIRE(next.find(key_of(n)) == (there ? model[n] : index_value::empty));
    }
    BOOST_REQUIRE(next.size() == live);
    for (std::uint64_t n = 4'000; n < 9'000; ++n) BOOST_REQUIRE(next.insert(key_of(n), value_of(n)).has_value());
    for (std::uint64_t n = 4'000; n < 9'000; ++n) BOOST_REQUIRE(next.find(key_of(n)) == value_of(n));
  }
}

BOOST_AUTO_TEST_CASE(a_writer_killed_at_any_moment_leaves_an_index_that_can_be_read_and_repaired) {
  std::mt19937_64 random(6);
  struct journal {
    std::atomic<std::uint64_t> inserted, erased;  // keys [erased, inserted) are there
  };
  auto* log = static_cast<journal*>(::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  BOOST_REQUIRE(log != MAP_FAILED);
  std::uint64_t total = 0;
  for (int round = 0; round < 50; ++round) {
    auto writer = fresh();
    log->inserted = log->erased = 0;
    const std::uint64_t keep = 500 + random() % 20'000;
    const pid_t child = ::fork();
    BOOST_REQUIRE(child >= 0);
    if (child == 0) {
      for (std::uint64_t n = 0;; ++n) {
        if (!writer.insert(key_of(n), value_of(n))) ::_exit(1);
        log->inserted = n + 1;
        if (n < keep) continue;
        log->erased = n - keep + 1;  // first said, then done
        writer.erase(key_of(n - keep));
      }
    }
    ::usleep(static_cast<unsigned>(random() % 4'000));
    ::kill(child, SIGKILL);
    int status = 0;
    BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
    BOOST_REQUIRE(WIFSIGNALED(status));
    const std::uint64_t last = log->inserted;
    const std::uint64_t first = log->erased;
    total += last;
    const index_reader reader = writer.reader();
    for (std::uint64_t n = first; n < last; ++n) BOOST_REQUIRE(reader.find(key_of(n)) == value_of(n));
    auto next = opened(writer);
    std::unordered_set<std::uint64_t> seen;
    std::mutex mutex;
    next.reconcile([&](const block_key& key, std::uint64_t value) {
      const std::lock_guard lock(mutex);
      const std::uint64_t n = number_in(value);
      return key == key_of(n) && n >= first && n <= last && seen.insert(n).second;
    });
    for (std::uint64_t n = first; n < last; ++n) BOOST_REQUIRE(next.find(key_of(n)) == value_of(n));
    BOOST_REQUIRE(next.size() - (last - first) <= 1U);  // the insert under way may be there
    for (std::uint64_t n = first; n < last; ++n) next.erase(key_of(n));
    next.erase(key_of(last));
    BOOST_REQUIRE(next.size() == 0U);
    for (std::uint64_t n = 0; n < 2'000; ++n) BOOST_REQUIRE(next.insert(key_of(n), value_of(n)).has_value());
    for (std::uint64_t n = 0; n < 2'000; ++n) BOOST_REQUIRE(next.find(key_of(n)) == value_of(n));
  }
  ::munmap(log, 4096);
  BOOST_TEST_MESSAGE("50 kills, " << total << " inserts");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::memory
