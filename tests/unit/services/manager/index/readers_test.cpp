// Readers beside a writer: what they see belongs to the key that they ask for.
#include <array>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "tests/unit/services/manager/index/index_world.hpp"

#include "tests/support/step_cost.hpp"

namespace cenote::manager::test {

BOOST_AUTO_TEST_SUITE(readers_beside_a_writer)

namespace {

constexpr std::uint64_t first_moving = 1;
constexpr std::uint64_t moving_keys = 60;
constexpr std::uint64_t first_stable = 1000;
constexpr std::uint64_t stable_keys = 60;
constexpr std::uint64_t first_passing = 10'000;  // keys that come and go, so that tables grow and slots move

constexpr int rounds = 4000 / cenote::testing::step_cost;

/// All of an extent follows from the key that alone lies in it.
constexpr extent_info extent_of(std::uint64_t key, std::uint64_t generation) {
  return {.number = key << 32 | generation,
          .wrote_at = static_cast<std::uint32_t>(key * 3),
          .storage = static_cast<std::uint8_t>(key % 200)};
}

template <class Part>
bool is_of_key(const Part& part, std::uint64_t key) {
  return part.extent >> 32 == key && part.wrote_at == key * 3 && part.storage == key % 200 && part.position == key;
}

constexpr bool has_checksums(std::uint64_t key) {
  return key < first_moving + moving_keys;
}

/// Whether a part has the checksums of its own extent, all of them.
bool has_own_checksums(const std::vector<std::uint64_t>& words, std::size_t first, std::uint64_t key,
                       std::uint64_t extent) {
  if (first >= words.size()) return !has_checksums(key);
  const std::size_t count = words[first] == 3 ? 2 : 1;
  for (std::size_t i = 1; i <= count; ++i) {
    if (first + i >= words.size() || words[first + i] != extent) return false;
  }
  return words[first] == 1 || words[first] == 3;
}

/// Gives keys locations in extents of their own, and takes them away again.
class moving_writer {
 public:
  moving_writer(index_world& world, std::uint64_t longest) : world_(world), longest_(longest) {}

  void put(std::uint64_t key) {
    const extent_info info = extent_of(key, ++generation_);
    const std::uint32_t extent = world_.index.extents().add(info).value();
    if (has_checksums(key)) {  // runs of several sizes, which their owners take from each other
      const std::size_t stride = 1 + generation_ % 2;
      world_.index.extents().set_checksums(
          extent, {.specs = stride == 1 ? 1U : 3U, .values = std::vector(stride * (key + 1), info.number)});
    }
    const std::uint32_t record = world_.put(key, extent, writing, std::uint64_t{1} << (generation_ % 64));
    world_.index.change_state(record, extent, writing, serving);
  }
  void move_one() {
    const std::uint64_t key = first_moving + random_() % moving_keys;
    const std::uint32_t record = world_.index.find({.low = key});
    std::vector<location> places;
    if (record != no_record)
      world_.index.visit_locations(record, [&](const location& each) { places.push_back(each); });
    if (places.size() < 6 && random_() % 2 == 0) {
      put(key);
    } else if (!places.empty()) {
      erase(record, places[random_() % places.size()].extent);
    }
  }
  /// A row of keys, which goes when it is long.
  void pass_one() {
    if (passed_ - removed_ == longest_) is_growing_ = false;
    if (passed_ == removed_) is_growing_ = true;
    if (is_growing_) {
      put(first_passing + passed_++);
      return;
    }
    const std::uint32_t record = world_.index.find({.low = first_passing + removed_++});
    std::uint32_t extent = 0;
    world_.index.visit_locations(record, [&](const location& place) { extent = place.extent; });
    erase(record, extent);
  }

 private:
  void erase(std::uint32_t record, std::uint32_t extent) {
    world_.index.change_state(record, extent, serving, deleting);
    world_.index.erase_location(record, extent, deleting);
    world_.index.extents().erase(extent);
  }

  index_world& world_;
  std::uint64_t longest_;
  std::mt19937_64 random_{17};
  std::uint64_t generation_ = 0;
  std::uint64_t passed_ = 0;
  std::uint64_t removed_ = 0;
  bool is_growing_ = true;
};

struct reader_report {
  std::size_t wrong = 0;
  std::size_t absent = 0;  ///< of the keys that are always there
};

void check(const lookup_answer& answer, std::span<const cache_key> keys, reader_report& report) {
  for (std::size_t i = 0; i < answer.keys.size(); ++i) {
    const found_key& entry = answer.keys[i];
    for (const found_part& part : std::span(answer.parts).subspan(entry.first_part, entry.parts)) {
      const bool is_sound =
          is_of_key(part, keys[i].low) && has_own_checksums(answer.checksums, part.checksums, keys[i].low, part.extent);
      report.wrong += is_sound ? 0U : 1U;
    }
  }
}

reader_report read_all(const index_world& w) {
  reader_report report;
  lookup_answer answer;
  std::vector<key_state> states;
  std::vector<std::uint32_t> records;
  const std::vector<cache_key> moving = row(first_moving, moving_keys);
  const std::vector<cache_key> stable = row(first_stable, stable_keys);
  for (int i = 0; i < rounds; ++i) {
    w.index.read_each(moving, w.order, answer);
    check(answer, moving, report);
    if (const auto begin = w.index.match_window(moving, 3, w.order, answer)) {
      check(answer, std::span(moving).subspan(*begin), report);
    }
    w.index.read_states(moving, states);
    for (const key_state& each : states) {
      const std::uint64_t key = moving[each.key].low;
      const bool is_sound = is_of_key(each, key) && has_own_checksums(each.checksums, 0, key, each.extent);
      report.wrong += is_sound ? 0U : 1U;
    }
    report.absent += stable_keys - w.index.match_prefix(stable, w.order, {}, answer);
    check(answer, stable, report);
    report.absent += stable_keys - w.index.count_prefix(stable, w.order, {}, records);
  }
  return report;
}

/// Runs `read` in two threads and, until both are through, `write` in this one.
template <class Read, class Write>
std::array<reader_report, 2> run_beside(Read&& read, Write&& write) {
  std::array<reader_report, 2> reports{};
  std::atomic<int> done = 0;
  std::vector<std::thread> readers;
  for (reader_report& report : reports) {
    readers.emplace_back([&] {
      report = read();
      ++done;
    });
  }
  while (done < 2) write();
  for (std::thread& each : readers) each.join();
  return reports;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_reader_never_sees_what_is_of_another_key_nor_misses_one_that_stays) {
  index_world w;
  moving_writer writer(w, 3000);
  for (std::uint64_t key = first_stable; key < first_stable + stable_keys; ++key) writer.put(key);
  const auto reports = run_beside([&] { return read_all(w); },
                                  [&] {
                                    writer.move_one();
                                    writer.pass_one();
                                  });
  for (const reader_report& report : reports) {
    BOOST_TEST(report.wrong == 0U);
    BOOST_TEST(report.absent == 0U);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager::test
