// Instances that are cleared, in steps.
#include "tiers/blocks/clears.hpp"

#include <boost/test/unit_test.hpp>
#include <cstring>

#include "core/checksum.hpp"
#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::clears_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;

namespace {

store_options with_lower() {
  store_options options = options_of(5 << 20, 1 << 20);
  options.edges.resize(1);
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(with_lower()) {}

  instance& in = add();
  session& client = attach(in);
  std::vector<removal> below;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(clears_suite, fixture)

BOOST_AUTO_TEST_CASE(an_unknown_instance_is_not_cleared_and_no_name_means_all) {
  (void)present(in, 1);
  instance& other = add("other");
  (void)present(other, 1);
  BOOST_TEST(!of.clear.clear_instance("no such one", now, &below).has_value());
  BOOST_TEST(!of.clear.begin_clear("no such one", below).has_value());
  BOOST_TEST(below.empty());
  BOOST_TEST(of.clear.begin_clear("", below)->size() == 2U);
  BOOST_TEST(of.clear.clear_instance("other", now).value() == 1U);
  BOOST_TEST(find(in, 1).has_value());
  BOOST_TEST(!find(other, 1).has_value());
  BOOST_TEST(of.clear.clear_all(now) == 1U);
}

BOOST_AUTO_TEST_CASE(a_clear_stops_when_its_budget_is_spent_and_goes_on_from_there) {
  constexpr std::uint64_t blocks = 300;  // of two slabs
  for (std::uint64_t key = 1; key <= blocks; ++key) (void)present(in, key);
  {
    clear_work work = of.clear.begin_clear_of(in, nullptr);
    BOOST_TEST(in.is_clearing());
    BOOST_TEST(!of.clear.clear_some(work, now, 1));
    BOOST_TEST(work.cleared > 0U);
    BOOST_TEST(work.cleared < blocks);
    while (!of.clear.clear_some(work, now, 1)) continue;
    BOOST_TEST(work.cleared == blocks);
  }
  BOOST_TEST(!in.is_clearing());
  BOOST_TEST(of.all.used == 0U);
}

BOOST_AUTO_TEST_CASE(a_clear_of_an_instance_that_is_gone_is_done) {
  clear_work work;
  BOOST_TEST(of.clear.clear_some(work, now, 1));
  BOOST_TEST(work.cleared == 0U);
}

BOOST_AUTO_TEST_CASE(a_pinned_block_is_no_hit_any_more_but_its_bytes_stay) {
  const block_ref ref = present(in, 1);
  pin(client, ref);
  fill(slab_of(in, ref)->block(ref), 4096, key_of(1));
  BOOST_TEST(of.clear.clear_instance("one", now).value() == 1U);
  BOOST_TEST(!find(in, 1).has_value());
  BOOST_TEST((state_of(in, ref) == block_state::zombie));
  BOOST_TEST(holds(slab_of(in, ref)->block(ref), 4096, key_of(1)));
}

BOOST_AUTO_TEST_CASE(a_block_that_is_being_written_loses_its_key_and_is_set_aside) {
  const block_ref ref = blank(in);
  memory::submission entry;
  entry.key_size = 16;
  entry.argument = 1;
  std::memcpy(entry.key, key_of(1).bytes.data(), entry.key_size);
  memory::completion answer;
  of.in_hands.reserve(client, entry, ref, now, answer);
  BOOST_TEST(in.reserved_keys.size() == 1U);
  BOOST_TEST(of.clear.clear_instance("one", now).value() == 0U);  // it was no hit yet
  BOOST_TEST(in.reserved_keys.empty());
  BOOST_TEST((state_of(in, ref) == block_state::quarantined));
}

BOOST_AUTO_TEST_CASE(the_tiers_below_are_told_once_for_each_instance) {
  const auto first = of.clear.begin_clear("one", below);
  const auto again = of.clear.begin_clear("one", below);
  BOOST_REQUIRE(below.size() == 1U);
  BOOST_TEST(below[0].all);
  BOOST_TEST((below[0].instance == in.number));
  of.all.options.edges.clear();
  below.clear();
  const auto without = of.clear.begin_clear("one", below);
  BOOST_TEST(below.empty());
}

BOOST_AUTO_TEST_CASE(a_block_that_is_on_its_way_up_is_not_wanted_any_more) {
  const block_ref ref = blank(in);
  const auto token =
      of.transfers.begin_moving(record_of(in, ref), {.owner = &in, .ref = ref, .stride = 4096, .up = true});
  in.loading.emplace(reduce_key(key_of(1).view(), 0), record_of(in, ref));
  const clear_work work = of.clear.begin_clear_of(in, nullptr);
  BOOST_TEST(in.loading.empty());
  BOOST_TEST(of.transfers.take_moving(token)->second.unwanted);
}

BOOST_AUTO_TEST_CASE(corruption_on_purpose_alters_each_word_under_a_checksum_that_agrees) {
  const block_ref ref = blank(in);
  slab& home = *slab_of(in, ref);
  std::vector<std::byte> before(home.block(ref), home.block(ref) + 4096);
  of.blocks.publish(in, home, ref, key_of(1), now, checksum_of(before.data(), before.size()));
  memory::block_record& record = of.all.record_of(home, ref);
  record.flags |= memory::block_record::flag_below;
  of.order.enter_order(pool_in(in), record_of(in, ref), now);
  BOOST_TEST(of.clear.corrupt_all(below) == 1U);
  for (std::size_t word = 0; word < before.size(); word += 2) {
    BOOST_REQUIRE(std::memcmp(home.block(ref) + word, before.data() + word, 2) != 0);
  }
  BOOST_TEST(record.checksum().value() == checksum_of(home.block(ref), 4096));
  BOOST_TEST((record.flags & memory::block_record::flags_below) == 0);  // the copy below is the right one
  BOOST_TEST(below.size() == 1U);
  BOOST_TEST(find(in, 1).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::clears_test
