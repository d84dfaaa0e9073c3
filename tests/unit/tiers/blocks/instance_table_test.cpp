// The instances that there are.
#include "tiers/blocks/instance_table.hpp"

#include <fcntl.h>

#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::instance_table_test {

using namespace testing;

namespace {

store_options with_lower() {
  store_options options = options_of(5 << 20, 1 << 20);
  options.edges.resize(1);
  return options;
}

struct fixture : bare_parts {
  fixture() : bare_parts(with_lower()) {}

  static bool is_read_only(const unique_fd& fd) { return (::fcntl(fd.get(), F_GETFL) & O_ACCMODE) == O_RDONLY; }
  /// Gives up its slabs, and then the instance.
  void end(instance& gone) {
    while (!gone.slabs.empty()) of.space.drop_slab(*gone.slabs.begin()->second);
    of.table.erase(gone.number);
  }
  result<void> add_again(instance& other, const std::string& id) {
    using memory::index_writer, memory::shared_file, memory::version_table;
    auto index = index_writer::create(shared_file::create("test-index", memory::index_segment_bytes).value());
    auto versions = version_table::create(shared_file::create("test-versions", version_table::segment_bytes).value());
    return of.table.add_instance(other.number, spec_of(id), std::move(*index), std::move(*versions), now);
  }
  instance& in = add();
};

/// Of which all requests are watched, with room for about 16,000 blocks.
struct watched_parts : bare_parts {
  watched_parts() : bare_parts(watched_options()) {}

  static store_options watched_options() {
    store_options options = options_of(64 << 20, 1 << 20);
    options.watch = request_watch::all;
    return options;
  }
  [[nodiscard]] std::uint64_t room_of(instance& watched) const {
    BOOST_TEST(pool_in(watched).watched_room * pool_in(watched).stride <= of.all.options.capacity);
    return pool_in(watched).watched_room;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(instance_table_suite, fixture)

BOOST_AUTO_TEST_CASE(an_instance_is_found_by_its_spec_and_a_difference_is_named) {
  BOOST_TEST(!of.table.find_instance(spec_of("other")).value().has_value());
  BOOST_TEST((of.table.find_instance(spec_of("one")).value() == in.number));
  instance_spec changed = spec_of("one");
  changed.dtype = "fp8";
  const auto refused = of.table.find_instance(changed);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::spec_mismatch));
  BOOST_TEST(refused.error().message().contains("dtype"));
}

BOOST_AUTO_TEST_CASE(an_id_that_others_use_with_another_spec_is_free) {
  instance_spec changed = spec_of("one");
  changed.dtype = "fp8";
  BOOST_TEST(!of.table.find_instance(changed, 1001).value().has_value());
  BOOST_TEST((of.table.find_instance(spec_of("one"), 1001).value() == in.number));
  instance_spec elsewhere = changed;
  elsewhere.instance_group = "team";
  BOOST_TEST(!of.table.find_instance(elsewhere, 0).value().has_value());
}

BOOST_AUTO_TEST_CASE(a_number_or_a_name_that_is_taken_is_refused_and_nothing_changes) {
  BOOST_TEST(!add_again(in, "another").has_value());
  instance& other = add("other");
  end(other);
  (void)of.table.take_bindings();
  BOOST_TEST(!add_again(in, "one").has_value());
  BOOST_TEST(of.all.instances.size() == 1U);
  BOOST_TEST(of.all.by_id.find("one")->second == &in);
  BOOST_TEST(of.table.made_by(0) == 1U);
  BOOST_TEST(of.table.take_bindings().empty());
}

BOOST_AUTO_TEST_CASE(a_block_must_fit_into_the_tier_and_another_one_beside_it_below_the_high_mark) {
  const std::uint64_t capacity = of.all.options.capacity;
  BOOST_TEST(of.table.check_fits(spec_of("small", capacity / 4)).has_value());
  const std::uint64_t half = capacity / 2 - 2 * memory::page_bytes;  // with its slab's trailer
  const auto too_large = of.table.check_fits(spec_of("large", capacity));
  BOOST_REQUIRE(!too_large.has_value());
  BOOST_TEST((too_large.error().code() == error_code::invalid_argument));
  BOOST_TEST(!of.table.check_fits(spec_of("half", half)).has_value());
  of.all.options.high_water = 1.0;  // nothing goes before the tier is full
  BOOST_TEST(of.table.check_fits(spec_of("half", half)).has_value());
}

BOOST_AUTO_TEST_CASE(clients_get_descriptors_that_cannot_be_written) {
  const auto both = of.table.descriptors(in.number);
  BOOST_REQUIRE(both.has_value());
  BOOST_TEST(is_read_only(both->first));
  BOOST_TEST(is_read_only(both->second));
  const slab& home = *in.slabs.begin()->second;
  BOOST_TEST(of.table.slab_descriptor(in.number, home.what.index)->second == home.memory.size());
  BOOST_TEST(!of.table.slab_descriptor(in.number, home.what.index + 1).has_value());
}

BOOST_AUTO_TEST_CASE(the_tier_below_hears_of_an_instance_once_and_not_of_one_that_is_gone) {
  auto bindings = of.table.take_bindings();
  BOOST_REQUIRE(bindings.size() == 1U);
  BOOST_TEST((bindings[0].number == in.number));
  end(add("brief"));
  BOOST_TEST(of.table.take_bindings().empty());
  of.all.options.edges.clear();
  add("later");
  BOOST_TEST(of.table.take_bindings().empty());
}

BOOST_AUTO_TEST_CASE(an_instance_that_is_gone_is_named_once_and_its_name_is_free) {
  const auto number = in.number;
  end(in);
  BOOST_TEST((of.table.take_given_up() == std::vector{number}));
  BOOST_TEST(of.table.take_given_up().empty());
  BOOST_TEST(of.table.made_by(0) == 0U);
  BOOST_TEST(!of.table.descriptors(number).has_value());
  BOOST_TEST((add("one").number != number));
}

BOOST_AUTO_TEST_CASE(an_instance_is_idle_from_its_making_until_somebody_attaches) {
  BOOST_TEST((in.versions.idle_since() == now));
  BOOST_TEST((in.claimed_until == now + of.all.options.life.claim));
  (void)attach(in);
  BOOST_TEST((in.versions.idle_since() == boot_time{}));
  BOOST_TEST((in.claimed_until == boot_time{}));
  of.table.begin_idle(in, boot_time{});  // 0 means that somebody uses it
  BOOST_TEST((in.versions.idle_since() != boot_time{}));
}

BOOST_FIXTURE_TEST_CASE(the_first_instance_is_watched_with_the_room_of_the_tier_as_later_ones_are, watched_parts) {
  const std::uint64_t first = room_of(add("first"));
  BOOST_TEST(first > 15'000U);
  BOOST_TEST(room_of(add("second")) == first);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::instance_table_test
