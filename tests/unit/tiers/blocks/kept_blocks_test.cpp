// Blocks that stay until they are removed.
#include "tiers/blocks/kept_blocks.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::kept_blocks_test {

using namespace testing;
using memory::block_ref;

namespace {

constexpr std::uint64_t block = 4096;

store_options with_group() {
  store_options options = options_of(5 << 20, 1 << 20);
  options.groups["keeping"] = {.keep_quota = 2 * block};
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(with_group()) {}

  bool keep(block_ref ref, bool kept = true) { return of.kept.set_kept(*slab_of(in, ref), ref, kept, now); }
  [[nodiscard]] bool is_kept(block_ref ref) const {
    return (of.all.record_of(*slab_of(in, ref), ref).flags & memory::block_record::flag_kept) != 0;
  }
  /// The group's options from now on.
  void give(const group_options& given) { of.kept.set_groups({{"keeping", given}}, now); }
  instance& in = add("one", "keeping");
  pool& group = pool_in(in);
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(kept_blocks_suite, fixture)

BOOST_AUTO_TEST_CASE(a_block_that_is_kept_twice_is_counted_once) {
  const block_ref ref = present(in, 1);
  BOOST_TEST(keep(ref));
  BOOST_TEST(keep(ref));
  BOOST_TEST(in.payer->kept == block);
  BOOST_TEST(group.kept == 1U);
  BOOST_TEST(keep(ref, false));
  BOOST_TEST(keep(ref, false));
  BOOST_TEST(in.payer->kept == 0U);
  BOOST_TEST(group.policy->size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_block_beyond_the_quota_is_refused_and_stays_in_the_order) {
  BOOST_TEST(keep(present(in, 1)));
  BOOST_TEST(keep(present(in, 2)));
  const block_ref third = present(in, 3);
  BOOST_TEST(!keep(third));
  BOOST_TEST(!is_kept(third));
  BOOST_TEST(*oldest_of(group) == record_of(in, third));
  BOOST_TEST(in.payer->kept == 2 * block);
}

BOOST_AUTO_TEST_CASE(all_groups_together_keep_no_more_than_their_share_of_the_capacity) {
  limit_options limits;
  limits.keep_share = static_cast<double>(block) / static_cast<double>(of.all.options.capacity);
  of.kept.set_limits(limits, now);
  BOOST_TEST(keep(present(in, 1)));
  instance& other = add("other", "");
  const block_ref ref = present(other, 2);
  BOOST_TEST(!of.kept.set_kept(*slab_of(other, ref), ref, true, now));
}

BOOST_AUTO_TEST_CASE(blocks_are_kept_as_long_as_the_configuration_names_them) {
  const block_ref here = present(in, 1);
  give({.keep_quota = 2 * block, .keep = {key_of(1), key_of(2)}});
  BOOST_TEST(is_kept(here));
  const block_ref later = present(in, 2);
  BOOST_TEST(is_kept(later));
  give({.keep_quota = 2 * block, .keep = {key_of(2)}});
  BOOST_TEST(!is_kept(here));
  BOOST_TEST(is_kept(later));
  BOOST_TEST(*oldest_of(group) == record_of(in, here));
}

BOOST_AUTO_TEST_CASE(what_exceeds_a_lowered_limit_is_let_go_but_not_what_the_configuration_names) {
  const block_ref named = present(in, 1);
  give({.keep_quota = 3 * block, .keep = {key_of(1)}});
  const block_ref second = present(in, 2);
  const block_ref third = present(in, 3);
  BOOST_TEST(keep(second));
  BOOST_TEST(keep(third));
  of.kept.trim_kept(now);  // within the limit: nothing to do
  BOOST_TEST(in.payer->kept == 3 * block);
  give({.keep_quota = block, .keep = {key_of(1)}});
  of.kept.trim_kept(now);
  BOOST_TEST(is_kept(named));
  BOOST_TEST(!is_kept(second));
  BOOST_TEST(!is_kept(third));
  BOOST_TEST(group.policy->size() == 2U);
}

BOOST_AUTO_TEST_CASE(an_instance_that_goes_keeps_nothing_not_even_what_the_configuration_names) {
  const block_ref named = present(in, 1);
  give({.keep_quota = 2 * block, .keep = {key_of(1)}});
  BOOST_TEST(is_kept(named));
  of.kept.keep_no_more(group, now);
  BOOST_TEST(!is_kept(named));
  BOOST_TEST(in.payer->kept == 0U);
  BOOST_TEST(*oldest_of(group) == record_of(in, named));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::kept_blocks_test
