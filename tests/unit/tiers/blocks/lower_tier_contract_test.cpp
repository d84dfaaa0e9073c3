// What every tier below a store of blocks does, whatever it keeps blocks on.
#include <algorithm>
#include <array>
#include <boost/mpl/list.hpp>
#include <boost/test/unit_test.hpp>
#include <memory>

#include "tests/unit/tiers/blocks/lower_subjects.hpp"
#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks {

using namespace testing;

namespace {

constexpr std::size_t size = 4096;

using subjects = boost::mpl::list<nvme_subject, memory_subject, remote_subject>;

template <class Subject>
struct contract {
  /// Memory of a slab: transfers want whole pages.
  struct alignas(4096) block {
    std::array<std::byte, size> bytes;
  };

  transfer of(std::uint64_t n, block& memory) {
    const full_key full = key_of(n);
    return {.instance = 1,
            .group = 0,
            .token = ++tokens,
            .full = full,
            .key = reduce_key(full.view(), 0),
            .memory = memory.bytes};
  }
  std::unique_ptr<block> filled(std::uint64_t n) {
    auto made = std::make_unique<block>();
    fill(made->bytes.data(), size, key_of(n));
    return made;
  }
  /// Writes it down, and what became of that.
  transfer_result write(std::uint64_t n) {
    const auto memory = filled(n);
    const transfer one = of(n, *memory);
    below.write(std::span(&one, 1));
    return only(below.settle(), one.token);
  }
  transfer_result read(std::uint64_t n, block& into) {
    const transfer one = of(n, into);
    below.read(std::span(&one, 1));
    return only(below.settle(), one.token);
  }
  static transfer_result only(const std::vector<transfer_outcome>& all, std::uint64_t token) {
    BOOST_REQUIRE(all.size() == 1U);
    BOOST_TEST(all[0].token == token);
    return all[0].what;
  }

  Subject below;
  std::uint64_t tokens = 0;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(lower_tier_contract)

BOOST_AUTO_TEST_CASE_TEMPLATE(each_token_is_answered_once_and_the_bytes_are_those_that_were_written, Subject,
                              subjects) {
  contract<Subject> test;
  std::vector<std::unique_ptr<typename contract<Subject>::block>> memory;
  std::vector<transfer> down;
  for (std::uint64_t n = 0; n < 32; ++n) down.push_back(test.of(n, *memory.emplace_back(test.filled(n))));
  test.below.write(down);
  auto ended = test.below.settle();
  std::ranges::sort(ended, {}, &transfer_outcome::token);
  BOOST_REQUIRE(ended.size() == down.size());
  for (std::size_t i = 0; i < down.size(); ++i) {
    BOOST_TEST(ended[i].token == down[i].token);
    BOOST_TEST((ended[i].what == transfer_result::done));
  }
  for (std::uint64_t n = 0; n < 32; ++n) {
    typename contract<Subject>::block into{};
    BOOST_TEST((test.read(n, into) == transfer_result::done));
    BOOST_TEST(holds(into.bytes.data(), size, key_of(n)));
  }
  BOOST_TEST(test.below.settle().empty());
}

BOOST_AUTO_TEST_CASE_TEMPLATE(memory_is_not_touched_after_its_answer, Subject, subjects) {
  contract<Subject> test;
  const auto memory = test.filled(1);
  const transfer one = test.of(1, *memory);
  test.below.write(std::span(&one, 1));
  BOOST_TEST(test.below.settle().size() == 1U);
  fill(memory->bytes.data(), size, key_of(2));  // the slab's block is another one's now
  typename contract<Subject>::block into{};
  BOOST_TEST((test.read(1, into) == transfer_result::done));
  BOOST_TEST(holds(into.bytes.data(), size, key_of(1)));
  fill(into.bytes.data(), size, key_of(3));
  (void)test.below.settle();
  BOOST_TEST(holds(into.bytes.data(), size, key_of(3)));
  BOOST_TEST(holds(memory->bytes.data(), size, key_of(2)));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(forgetting_beats_a_write_under_way, Subject, subjects) {
  contract<Subject> test;
  const auto memory = test.filled(1);
  const transfer one = test.of(1, *memory);
  test.below.write(std::span(&one, 1));
  test.below.forget(1, {one.key});
  BOOST_TEST(test.below.settle().size() == 1U);  // its memory comes back all the same
  typename contract<Subject>::block into{};
  BOOST_TEST((test.read(1, into) == transfer_result::missing));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(what_is_being_forgotten_is_missing, Subject, subjects) {
  contract<Subject> test;
  BOOST_TEST((test.write(1) == transfer_result::done));
  typename contract<Subject>::block into{};
  const transfer one = test.of(1, into);
  test.below.forget(1, {one.key});
  test.below.read(std::span(&one, 1));
  BOOST_TEST((contract<Subject>::only(test.below.settle(), one.token) == transfer_result::missing));
  BOOST_TEST((test.write(1) == transfer_result::done));  // what is written afterwards is there
  BOOST_TEST((test.read(1, into) == transfer_result::done));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(wrong_bytes_are_a_failure_and_the_copy_goes, Subject, subjects) {
  contract<Subject> test;
  BOOST_TEST((test.write(1) == transfer_result::done));
  test.below.spoil(test.filled(1)->bytes);
  typename contract<Subject>::block into{};
  BOOST_TEST((test.read(1, into) == transfer_result::failed));
  BOOST_TEST((test.read(1, into) == transfer_result::missing));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(after_a_stop_each_token_is_still_answered_once, Subject, subjects) {
  contract<Subject> test;
  for (std::uint64_t n = 0; n < 8; ++n) BOOST_TEST((test.write(n) == transfer_result::done));
  std::vector<std::unique_ptr<typename contract<Subject>::block>> memory;
  std::vector<transfer> down;
  std::vector<transfer> up;
  const auto ask = [&](std::uint64_t first) {
    down.clear();
    up.clear();
    for (std::uint64_t n = first; n < first + 8; ++n) down.push_back(test.of(n, *memory.emplace_back(test.filled(n))));
    for (std::uint64_t n = 0; n < 8; ++n) up.push_back(test.of(n, *memory.emplace_back(test.filled(100))));
    test.below.write(down);
    test.below.read(up);
  };
  const auto answered_once = [&](const std::vector<transfer_outcome>& ended) {
    std::vector<std::uint64_t> tokens;
    for (const transfer_outcome& each : ended) tokens.push_back(each.token);
    std::ranges::sort(tokens);
    std::vector<std::uint64_t> wanted;
    for (const transfer& each : down) wanted.push_back(each.token);
    for (const transfer& each : up) wanted.push_back(each.token);
    BOOST_TEST(tokens == wanted, boost::test_tools::per_element());
  };
  ask(100);
  for (int i = 0; i < 3; ++i) (void)test.below.step();  // some have ended, some have begun
  test.below.stop();
  answered_once(test.below.settle());
  ask(200);
  const auto late = test.below.settle();
  answered_once(late);
  BOOST_TEST(std::ranges::none_of(late, [](const auto& each) { return each.what == transfer_result::done; }));
}

BOOST_AUTO_TEST_CASE_TEMPLATE(nothing_is_done_in_the_callers_turn, Subject, subjects) {
  contract<Subject> test;
  const auto memory = test.filled(1);
  const transfer one = test.of(1, *memory);
  test.below.write(std::span(&one, 1));
  BOOST_TEST(test.below.take_outcomes().empty());  // it goes on when the device does
  BOOST_TEST(test.below.settle().size() == 1U);
  typename contract<Subject>::block into{};
  const transfer up = test.of(1, into);
  test.below.read(std::span(&up, 1));
  BOOST_TEST(test.below.take_outcomes().empty());
  BOOST_TEST(test.below.settle().size() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks
