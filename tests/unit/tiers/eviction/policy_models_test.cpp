// Every policy against what it promises, and the simple ones against models that search all they hold.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <functional>
#include <random>

#include "tiers/eviction/policy.hpp"

#include "tests/support/step_cost.hpp"

namespace cenote::eviction {

namespace {

constexpr std::uint32_t capacity = 40;
constexpr std::uint32_t blocks = 120;

struct modelled {
  std::uint32_t block = 0;
  int uses = 0;
};

/// The blocks from the next victim's end to the other.
struct model {
  std::vector<modelled> order;
  std::size_t hand = 0;  ///< SIEVE's

  [[nodiscard]] auto find(std::uint32_t block) { return std::ranges::find(order, block, &modelled::block); }
  void to_end(std::uint32_t block) {
    const auto at = find(block);
    std::rotate(at, at + 1, order.end());
  }
};

struct model_rules {
  std::function<void(model&, std::uint32_t)> touch;
  std::function<void(model&, std::uint32_t)> refresh;
  std::function<std::uint32_t(model&)> victim;
};

void count(model& model, std::uint32_t block) {
  model.find(block)->uses = 1;
}

void nothing(model& /*in*/, std::uint32_t /*block*/) {}

std::uint32_t first(model& model) {
  return model.order.front().block;
}

std::uint32_t clock_victim(model& model) {
  while (model.order.front().uses != 0) {
    model.order.front().uses = 0;
    model.to_end(model.order.front().block);
  }
  return first(model);
}

std::uint32_t sieve_victim(model& model) {
  while (model.order[model.hand].uses != 0) {
    model.order[model.hand].uses = 0;
    model.hand = (model.hand + 1) % model.order.size();
  }
  return model.order[model.hand].block;
}

const model_rules fifo_rules{nothing, nothing, first};
const model_rules lru_rules{&model::to_end, &model::to_end, first};
const model_rules clock_rules{count, nothing, clock_victim};
const model_rules sieve_rules{count, nothing, sieve_victim};
const model_rules lfu_rules{[](model& in, std::uint32_t block) {
                              ++in.find(block)->uses;
                              in.to_end(block);
                            },
                            &model::to_end,
                            [](model& in) { return std::ranges::min_element(in.order, {}, &modelled::uses)->block; }};

void forget(model& model, std::uint32_t block) {
  const auto at = model.find(block);
  if (static_cast<std::size_t>(at - model.order.begin()) < model.hand) --model.hand;
  model.order.erase(at);
  if (model.hand >= model.order.size()) model.hand = 0;
}

void compare(std::string_view name, const model_rules& rules) {
  block_links links;
  links.cover(blocks);
  const auto tested = std::move(*make_policy(name, links));
  tested->resize(capacity);
  model in;
  std::mt19937_64 random(11);
  for (int step = 0; step < 30'000; ++step) {
    const auto block = static_cast<std::uint32_t>(std::min(random() % blocks, random() % blocks));
    const bool there = in.find(block) != in.order.end();
    if (!there) {
      if (in.order.size() == capacity) {
        const std::uint32_t victim = rules.victim(in);
        BOOST_REQUIRE(tested->victim() == victim);
        BOOST_REQUIRE(tested->victim() == victim);
        tested->evict(victim, victim, 0);
        forget(in, victim);
      }
      tested->insert(block, block, 0);
      in.order.push_back({block, 0});
    } else if (const auto choice = random() % 8; choice == 0) {
      tested->forget(block);
      forget(in, block);
    } else if (choice < 3) {
      tested->refresh(block, 0);
      rules.refresh(in, block);
    } else {
      tested->touch(block, 0);
      rules.touch(in, block);
    }
    BOOST_REQUIRE(tested->size() == in.order.size());
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(policy_models)

BOOST_AUTO_TEST_CASE(fifo_does_what_its_model_does) {
  compare("fifo", fifo_rules);
}

BOOST_AUTO_TEST_CASE(lru_does_what_its_model_does) {
  compare("lru", lru_rules);
}

BOOST_AUTO_TEST_CASE(clock_does_what_its_model_does) {
  compare("clock", clock_rules);
}

BOOST_AUTO_TEST_CASE(sieve_does_what_its_model_does) {
  compare("sieve", sieve_rules);
}

BOOST_AUTO_TEST_CASE(lfu_does_what_its_model_does) {
  compare("lfu", lfu_rules);
}

/// Whatever comes, in whatever order: victims are blocks that are there, sizes are right, and ghosts stay few.
BOOST_AUTO_TEST_CASE(every_policy_keeps_its_promises) {
  for (const std::string_view name : policy_names()) {
    block_links links;
    links.cover(blocks);
    const auto tested = std::move(*make_policy(name, links));
    tested->resize(capacity);
    std::vector<bool> here(blocks);
    std::vector<std::uint64_t> identity(blocks);
    std::uint32_t held = 0;
    std::uint64_t next_identity = 0;
    std::mt19937_64 random(5);
    for (std::uint32_t step = 0; step < 60'000 / cenote::testing::step_cost; ++step) {
      const auto block = static_cast<std::uint32_t>(random() % blocks);
      const std::uint32_t now = step / 4;
      if (random() % 5 == 0) {
        const std::uint64_t tip = random() % (2 * next_identity + 1);
        tested->begin_request({.ids = {&tip, 1}, .resident = {}, .partial = random() % 2 == 0}, now);
      }
      if (const auto victim = tested->victim()) {
        BOOST_REQUIRE_MESSAGE(here[*victim], name << " chose a missing block");
        if (random() % 8 == 0 && held > 1) {
          tested->skip_victim(*victim, now);
          BOOST_REQUIRE_MESSAGE(tested->victim() != victim, name << " insists on a block that cannot go");
        }
      }
      if (here[block]) {
        switch (random() % 6) {
          case 0:
            tested->forget(block);
            here[block] = false;
            --held;
            break;
          case 1: tested->refresh(block, now); break;
          case 2: tested->skip_victim(block, now); break;
          default: tested->touch(block, now); break;
        }
      } else {
        // Half of what comes was here before, under another number.
        identity[block] = random() % 2 == 0 ? next_identity++ : random() % (next_identity + 1);
        bool unique = true;
        for (std::uint32_t other = 0; other < blocks; ++other) {
          unique = unique && (other == block || !here[other] || identity[other] != identity[block]);
        }
        if (!unique) continue;
        if (random() % 4 != 0 && !tested->should_admit(identity[block], now)) continue;
        while (held >= capacity) {  // also none too many at once
          const std::uint32_t victim = *tested->victim();
          tested->evict(victim, identity[victim], now);
          here[victim] = false;
          --held;
        }
        tested->insert(block, identity[block], now);
        here[block] = true;
        ++held;
      }
      BOOST_REQUIRE_MESSAGE(tested->size() == held, name << " counts " << tested->size() << " of " << held);
      const std::size_t most = name == "auto" ? 3 * 65'536 : name.starts_with("tblru") ? 65'536 : 4 * capacity;
      BOOST_REQUIRE_MESSAGE(tested->ghosts() <= most, name << " keeps " << tested->ghosts() << " ghosts");
    }
    while (const auto victim = tested->victim()) {
      tested->evict(*victim, identity[*victim], 0);
      --held;
    }
    BOOST_TEST(held == 0U);
  }
}

/// A tier evicts ahead of need, many blocks before the next one comes.
BOOST_AUTO_TEST_CASE(ghosts_stay_few_when_eviction_runs_ahead) {
  constexpr std::uint32_t many = 1000;
  for (const std::string_view name : policy_names()) {
    block_links links;
    links.cover(many);
    const auto tested = std::move(*make_policy(name, links));
    std::uint64_t next_identity = 0;
    std::vector<std::uint64_t> identity(many);
    std::vector<std::uint32_t> free(many);
    for (std::uint32_t i = 0; i < many; ++i) free[i] = i;
    for (int round = 0; round < 50; ++round) {
      for (; !free.empty(); free.pop_back()) {
        identity[free.back()] = next_identity;
        tested->insert(free.back(), next_identity++, 0);
      }
      while (tested->size() > many / 2) {
        const std::uint32_t victim = *tested->victim();
        tested->evict(victim, identity[victim], 0);
        free.push_back(victim);
      }
      BOOST_REQUIRE_MESSAGE(tested->ghosts() <= 4 * many, name << " keeps " << tested->ghosts() << " ghosts");
    }
  }
}

BOOST_AUTO_TEST_CASE(a_block_that_cannot_go_makes_way_for_another) {
  for (const std::string_view name : policy_names()) {
    block_links links;
    links.cover(10);
    const auto tested = std::move(*make_policy(name, links));
    tested->resize(10);
    for (std::uint32_t i = 0; i < 10; ++i) tested->insert(i, i, i);
    const std::uint32_t pinned = *tested->victim();
    tested->skip_victim(pinned, 10);
    BOOST_TEST(*tested->victim() != pinned, name << " insists");
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::eviction
