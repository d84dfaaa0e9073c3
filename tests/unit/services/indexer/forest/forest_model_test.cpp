// A dictionary beside the index, through random operations.
#include <algorithm>
#include <array>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <map>
#include <random>
#include <unordered_map>
#include <utility>

#include "tests/unit/services/indexer/forest/forest_world.hpp"

#include "tests/support/step_cost.hpp"

#ifndef CENOTE_TSAN  // one thread alone

namespace cenote::indexer::test {

namespace {

bool is_full() {
  return std::getenv("CENOTE_TEST_FULL") != nullptr;
}

std::size_t operation_count() {
  return is_full() ? 10'000'000 : 20'000 / cenote::testing::step_cost;
}

constexpr std::size_t pods = 12;
constexpr std::size_t media = 3;
constexpr std::size_t most_unchecked = 200'000;  // operations between two looks at all there is

/// The answers that are right: by key, how often each holder stored it.
class forest_model {
 public:
  using name = std::size_t;  ///< pod * media + medium

  forest_model(std::size_t memory, std::uint64_t seed) : limit_(memory), world_(memory, 100'000), random_(seed) {
    for (name i = 0; i < pods * media; ++i) holders_.push_back(open(i));
  }

  void run(std::size_t operations) {
    for (std::size_t i = 0; i < operations; ++i) {
      if (i % 64 == 0) world_.index.advance_clock(static_cast<std::uint32_t>(1 + i / 64));
      step();
      BOOST_REQUIRE(world_.index.bytes() <= limit_);
      if (i % most_unchecked == 0) check_totals();
    }
    check_totals();
  }

  [[nodiscard]] forest_figures figures() const { return world_.index.figures(); }
  bool is_exact = true;  ///< false: memory drops blocks, so the index may know less, never more

 private:
  using counts = std::array<std::uint32_t, pods * media>;
  struct entry {
    counts stores{};
    counts lives{};  ///< of the holder, in which these stores count
  };

  [[nodiscard]] std::uint32_t& stores(entry& present, name owner) const {
    if (std::exchange(present.lives[owner], lives_[owner]) != lives_[owner]) present.stores[owner] = 0;
    return present.stores[owner];
  }
  [[nodiscard]] std::size_t holders(entry& present) const {
    std::size_t sum = 0;
    for (name owner = 0; owner < holders_.size(); ++owner) sum += stores(present, owner) > 0 ? 1 : 0;
    return sum;
  }

  [[nodiscard]] std::size_t draw(std::size_t bound) { return random_() % bound; }
  holder open(name owner) {
    return world_.open("pod" + std::to_string(owner / media), static_cast<medium_number>(owner % media));
  }
  // A pod's names: pods of odd numbers hash otherwise.
  [[nodiscard]] static name_domain domain(name owner) { return static_cast<name_domain>(owner / media % 2); }
  [[nodiscard]] static numbers hashes(name owner, std::span<const std::uint64_t> keys) {
    return names_of(keys, domain(owner) == 0 ? 7 : 8);
  }
  [[nodiscard]] block_number block(name owner, std::uint64_t key) {
    return world_.index.block_of(domain(owner), mixed(key, domain(owner) == 0 ? 7 : 8));
  }

  // A chain out of a forest of few: at some places it goes on in one of three ways.
  numbers path() {
    const bool is_short = has_short_paths_ && draw(16) != 0;
    const std::size_t length = 1 + draw(is_short ? 12 : draw(4) == 0 ? 300 : 60);
    numbers keys(length);
    std::uint64_t parent = 0;
    std::uint64_t way = draw(6);
    for (std::size_t i = 0; i < length; ++i) {
      if (i % 13 == 5 && draw(16) == 0) way = draw(3);
      parent = keys[i] = mixed(parent, way);
    }
    return keys;
  }

  void step() {
    const name owner = draw(holders_.size());
    const std::size_t what = draw(100);
    if (what < 40) {
      store(owner);
    } else if (what < 60) {
      remove(owner);
    } else if (what < 90) {
      score();
    } else if (what < 95) {
      look_up();
    } else if (what < 96) {
      if (draw(5) == 0) clear(owner);
    } else {
      (void)world_.index.sweep(1 + draw(50));
    }
  }

  void store(name owner) {
    numbers keys = path();
    // Of the path, some blocks in the middle behind a known parent.
    std::size_t first = draw(3) == 0 ? draw(keys.size()) : 0;
    while (first > 0 && block(owner, keys[first - 1]) == no_block) --first;
    const block_number parent = first == 0 ? no_block : block(owner, keys[first - 1]);
    const std::span<const std::uint64_t> stored(keys.begin() + static_cast<std::ptrdiff_t>(first), keys.end());
    const auto done = world_.index.store(domain(owner), parent, stored, hashes(owner, stored), holders_[owner]);
    BOOST_REQUIRE(done.has_value());
    if (is_exact) BOOST_REQUIRE(*done == stored.size());
    for (std::size_t i = first; i < first + *done; ++i) {
      entry& known = entries_[keys[i]];
      std::uint32_t& count = stores(known, owner);
      count = owner % media == 0 ? 1 : count + 1;
    }
  }

  void remove(name owner) {
    numbers keys = path();
    if (draw(2) == 0) {
      std::erase_if(keys, [&](std::uint64_t) { return draw(4) != 0; });
    } else {
      keys.erase(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(draw(keys.size())));
      std::ranges::reverse(keys);
    }
    if (draw(3) == 0) {
      std::vector<block_number> blocks;
      std::erase_if(keys, [&](std::uint64_t key) { return block(owner, key) == no_block; });
      for (const std::uint64_t key : keys) blocks.push_back(block(owner, key));
      (void)world_.index.remove(blocks, holders_[owner]);
    } else {
      std::erase_if(keys, [&](std::uint64_t key) { return block(owner, key) == no_block; });
      (void)world_.index.remove(domain(owner), hashes(owner, keys), holders_[owner]);
    }
    for (const std::uint64_t key : keys) {
      const auto found = entries_.find(key);
      if (found == entries_.end()) continue;
      std::uint32_t& count = stores(found->second, owner);
      count -= count > 0 ? 1 : 0;
    }
  }

  void clear(name owner) {
    world_.index.clear(holders_[owner]);
    ++lives_[owner];
    holders_[owner] = open(owner);
  }

  void score() {
    const numbers keys = path();
    const answers found = ask(world_.reader, keys);
    const answers expected = expected_of(keys);
    if (is_exact) {
      BOOST_REQUIRE(found == expected);
      return;
    }
    for (const auto& [pod, one] : found) {
      const auto most = expected.find(pod);
      BOOST_REQUIRE((most != expected.end() && one.blocks <= most->second.blocks));
    }
  }

  answers expected_of(const numbers& keys) {
    std::array<answer, pods> all;
    std::array<bool, pods> is_over{};
    for (const std::uint64_t key : keys) {
      const auto known = entries_.find(key);
      if (known == entries_.end()) break;
      for (std::size_t pod = 0; pod < pods; ++pod) {
        std::size_t medium = 0;
        while (medium < media && stores(known->second, pod * media + medium) == 0) ++medium;
        is_over[pod] = is_over[pod] || medium == media;
        if (is_over[pod]) continue;
        ++all[pod].blocks;
        ++all[pod].by_medium[medium];
      }
    }
    answers expected;
    for (std::size_t pod = 0; pod < pods; ++pod) {
      if (all[pod].blocks == 0) continue;
      const medium_weights weights;
      for (std::size_t i = 0; i < media; ++i) all[pod].score += weights.of_medium[i] * all[pod].by_medium[i];
      expected[{"pod" + std::to_string(pod), 0}] = all[pod];
    }
    return expected;
  }

  void look_up() {
    const numbers keys = path();
    std::size_t next = 0;
    world_.reader.lookup(keys, [&](std::size_t index, std::span<const block_holder> holding) {
      BOOST_REQUIRE(index == next++);
      const auto known = entries_.find(keys[index]);
      BOOST_REQUIRE(known != entries_.end());
      if (is_exact) BOOST_REQUIRE(holding.size() == holders(known->second));
      for (const block_holder& one : holding) {
        const auto pod = std::stoul(std::string(one.member->pod().substr(3)));
        BOOST_REQUIRE(stores(known->second, pod * media + one.medium) > 0);
      }
    });
    if (!is_exact || next == keys.size()) return;
    const auto known = entries_.find(keys[next]);
    BOOST_REQUIRE((known == entries_.end() || holders(known->second) == 0));
  }

  void check_totals() {
    std::map<name, std::uint64_t> sums;
    for (auto& [key, known] : entries_) {
      for (name owner = 0; owner < holders_.size(); ++owner) sums[owner] += stores(known, owner) > 0 ? 1U : 0U;
    }
    for (name owner = 0; owner < holders_.size(); ++owner) {
      std::uint64_t dumped = 0;
      world_.index.dump(holders_[owner], [&](const held_blocks& stretch) {
        dumped += stretch.keys.size();
        for (const std::uint64_t key : stretch.keys) BOOST_REQUIRE(stores(entries_[key], owner) > 0);
      });
      BOOST_REQUIRE(dumped == world_.index.holders().blocks(holders_[owner]));
      if (is_exact) {
        BOOST_REQUIRE(dumped == sums[owner]);
      } else {
        BOOST_REQUIRE(dumped + world_.index.holders().dropped(holders_[owner]) >= sums[owner]);
      }
    }
  }

  std::size_t limit_;
  world world_;
  std::mt19937_64 random_;
  bool has_short_paths_ = is_full();  ///< most of them, so that so many operations take minutes
  std::vector<holder> holders_;
  counts lives_{};  ///< of each holder: a clear begins the next
  std::unordered_map<std::uint64_t, entry> entries_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(forest_models)

BOOST_AUTO_TEST_CASE(the_index_answers_as_a_dictionary_does) {
  constexpr std::size_t memory = std::size_t{256} << 20;
  forest_model model(memory, 1);
  model.run(operation_count());
  BOOST_TEST(model.figures().evicted == 0U);
}

BOOST_AUTO_TEST_CASE(under_a_small_bound_the_index_never_says_more_than_the_dictionary) {
  constexpr std::size_t memory = std::size_t{3} << 20;
  forest_model model(memory, 2);
  model.is_exact = false;
  model.run(std::max<std::size_t>(operation_count(), 20'000));  // fewer do not fill it
  BOOST_TEST(model.figures().evicted > 0U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer::test

#endif
