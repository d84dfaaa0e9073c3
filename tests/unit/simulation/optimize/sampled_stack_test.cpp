#include "simulation/optimize/sampled_stack.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <random>
#include <vector>

namespace cenote::simulation {

namespace {

constexpr std::size_t most = 50;

struct listed {
  std::uint64_t key = 0;
  stack_part part = stack_part::sampled;
  bool present = false;  ///< the request under way has used it
};

/// The same as a plain list, the top last.
class listed_stack {
 public:
  void begin_request() {
    for (listed& each : all_) each.present = false;
  }
  [[nodiscard]] std::vector<listed>::iterator find(std::uint64_t key) {
    return std::ranges::find(all_, key, &listed::key);
  }
  void put_on_top(std::uint64_t key, stack_part part) {
    std::erase_if(all_, [&](const listed& each) { return each.key == key; });
    all_.push_back({key, part, true});
  }
  [[nodiscard]] sampled_stack::depth depth_of(std::uint64_t key) {
    sampled_stack::depth depth;
    for (auto each = find(key) + 1; each < all_.end(); ++each) {
      if (each->present) continue;
      ++(each->part == stack_part::exact ? depth.exact : depth.sampled);
    }
    return depth;
  }
  void erase(std::uint64_t key) { all_.erase(find(key)); }
  [[nodiscard]] const std::vector<listed>& all() const { return all_; }

 private:
  std::vector<listed> all_;
};

void check(const sampled_stack& stack, listed_stack& expected) {
  BOOST_REQUIRE(stack.exact() + stack.sampled() == expected.all().size());
  for (const listed& each : expected.all()) {
    const auto entry = stack.find(each.key);
    BOOST_REQUIRE(entry.has_value());
    BOOST_TEST((stack.part(*entry) == each.part));
    const auto depth = expected.depth_of(each.key);
    BOOST_TEST(stack.depth_of(*entry).exact == (each.present ? 0 : depth.exact));
    BOOST_TEST(stack.depth_of(*entry).sampled == (each.present ? 0 : depth.sampled));
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sampled_stacks)

BOOST_AUTO_TEST_CASE(depths_are_those_of_a_plain_list) {
  std::mt19937_64 random(1);
  sampled_stack stack(most);
  listed_stack expected;
  for (int step = 0; step < 3'000; ++step) {
    if (random() % 5 == 0) {
      stack.begin_request();
      expected.begin_request();
    }
    const std::uint64_t key = random() % 80;
    const auto part = random() % 3 == 0 ? stack_part::exact : stack_part::sampled;
    const auto entry = stack.find(key);
    BOOST_REQUIRE(entry.has_value() == (expected.find(key) != expected.all().end()));
    if (!entry) {
      if (stack.exact() + stack.sampled() == most) continue;
      stack.push(key, part);
      expected.put_on_top(key, part);
    } else if (random() % 4 == 0) {
      stack.erase(*entry);
      expected.erase(key);
    } else if (random() % 4 == 0) {
      stack.set_part(*entry, part);
      expected.find(key)->part = part;
    } else {
      stack.raise(*entry);
      expected.put_on_top(key, expected.find(key)->part);
    }
    if (step % 10 == 0) check(stack, expected);
  }
}

BOOST_AUTO_TEST_CASE(sampled_blocks_that_are_too_deep_go_and_exact_ones_stay) {
  sampled_stack stack(most);
  for (std::uint64_t key = 0; key < 20; ++key) {
    stack.push(key, key % 4 == 0 ? stack_part::exact : stack_part::sampled);
  }
  stack.erase_sampled([](std::uint64_t, const sampled_stack::depth& top) { return top.exact + top.sampled >= 10; });
  BOOST_TEST(stack.exact() == 5U);
  BOOST_TEST(stack.sampled() == 8U);  // of 10 on top, 12 and 16 are exact
  BOOST_TEST(stack.find(11).has_value());
  BOOST_TEST(!stack.find(9).has_value());
  BOOST_TEST(stack.find(8).has_value());
}

BOOST_AUTO_TEST_CASE(its_memory_does_not_grow) {
  sampled_stack stack(most);
  const std::size_t before = stack.bytes();
  for (std::uint64_t key = 0; key < 10'000; ++key) {
    if (key >= most) stack.erase(*stack.find(key - most));
    stack.push(key, stack_part::sampled);
  }
  BOOST_TEST(stack.bytes() == before);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::simulation
