// A worker takes over from one that died: everything out of the block records.
#include "tiers/blocks/recovery.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/parts_fixture.hpp"

namespace cenote::blocks::recovery_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;

namespace {

memory::shared_file copy_of(const memory::shared_file& file) {
  return memory::shared_file::adopt(file.fd().duplicate().value(), file.size()).value();
}

/// The next worker's parts, over the memory of those before.
struct successor {
  explicit successor(const bare_parts& old)
      : of(old.of.all.options,
           memory::record_table::open(old.of.all.records.memory().fd().duplicate().value()).value()) {}

  instance& take(const instance& old) {
    auto versions = memory::version_table::open(copy_of(old.versions.file()), memory::access::read_write).value();
    of.recover.recover_instance(old.number, old.spec, copy_of(old.index.file()), std::move(versions)).value();
    return *of.all.instances.at(old.number);
  }
  result<void> take(const slab& old, const slab_description& what) {
    auto memory = open_slab_memory(old.memory.fd().duplicate().value(), old.memory.size());
    return of.recover.recover_slab(what, std::move(memory).value());
  }
  session& take(const session& old) {
    of.recover.recover_session(old.number, old.of->number, old.memory).value();
    return *of.all.sessions.at(old.number);
  }

  parts of;
};

struct fixture : bare_parts {
  fixture() : bare_parts(with_lower()) {}
  static store_options with_lower() {
    store_options options = options_of(5 << 20, 1 << 20);
    options.edges.resize(1);
    return options;
  }
  /// Everything is taken over, but for the sessions. Returns how many blocks are served.
  std::uint64_t take_over() {
    taken = &next.take(in);
    BOOST_TEST(next.take(home, home.what).has_value());
    return rebuild();
  }
  std::uint64_t rebuild() { return next.of.recover.rebuild(now); }
  [[nodiscard]] bool serves(std::uint64_t key) const {
    const full_key full = key_of(key);
    const block_key name = reduce_key(full.view(), 0);
    const auto ref = next.of.all.find_present(*taken, name, full, nullptr);
    if (!ref) return false;
    return memory::index_value::matches(taken->index.find(name),
                                        taken->versions.version(version_index_of(*slab_of(*taken, *ref), *ref)));
  }
  [[nodiscard]] error_code refusal(slab_description what) {
    const auto refused = next.take(home, what);
    return refused ? error_code::ok : refused.error().code();
  }

  instance& in = add();
  slab& home = *in.slabs.begin()->second;
  successor next{*this};
  instance* taken = nullptr;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(recovery_suite, fixture)

BOOST_AUTO_TEST_CASE(what_was_a_hit_is_one_again_and_the_oldest_goes_first) {
  const block_ref old = present(in, 1);
  now += tenths(10);
  const block_ref kept = present(in, 2);
  BOOST_TEST(of.kept.set_kept(home, kept, true, now));
  now -= tenths(5);
  (void)present(in, 3);
  BOOST_TEST(take_over() == 3U);
  for (const std::uint64_t key : {1, 2, 3}) BOOST_TEST(serves(key));
  pool& group = pool_in(*taken);
  BOOST_TEST(group.policy->size() == 2U);
  BOOST_TEST(group.kept == 1U);
  BOOST_TEST(*oldest_of(group) == record_of(in, old));
  BOOST_TEST(next.of.all.used == of.all.used);
  BOOST_TEST(next.of.all.assigned == of.all.assigned);
  BOOST_TEST(group.free.size() == home.what.count - 3U);
}

BOOST_AUTO_TEST_CASE(a_block_that_was_being_published_or_condemned_is_served_under_a_greater_version) {
  const block_ref ref = present(in, 1);
  const std::uint32_t version_index = version_index_of(home, ref);
  const std::uint64_t before = in.versions.version(version_index);
  (void)of.pins.condemn(in, std::vector{ref});  // killed here
  BOOST_TEST(take_over() == 1U);
  BOOST_TEST(serves(1));
  BOOST_TEST(taken->versions.version(version_index) > before);
}

BOOST_AUTO_TEST_CASE(no_reader_finds_a_block_that_is_free_or_an_entry_without_a_block) {
  const block_ref ref = present(in, 1);
  of.all.record_of(home, ref).set_state(block_state::free);  // killed before the version said so
  BOOST_TEST(take_over() == 0U);
  BOOST_TEST(taken->versions.version(version_index_of(home, ref)) % 2 == 1U);
  BOOST_TEST(taken->index.find(reduce_key(key_of(1).view(), 0)) == memory::index_value::empty);
  BOOST_TEST(next.of.all.used == 0U);
}

BOOST_AUTO_TEST_CASE(a_grant_is_kept_only_if_the_slot_of_a_session_that_lives_has_it) {
  session& living = attach(in);
  session& dead = attach(in);
  const block_ref known = blank(in);
  const block_ref unknown = blank(in);
  of.in_hands.grant(living, pool_in(in), known);
  of.in_hands.grant(dead, pool_in(in), unknown);
  taken = &next.take(in);
  BOOST_TEST(next.take(home, home.what).has_value());
  const session& again = next.take(living);
  rebuild();
  BOOST_TEST(again.recovered);
  BOOST_TEST(again.granted.contains(known.bits));
  BOOST_TEST(again.blank == 4096U);
  BOOST_TEST((state_of(in, unknown) == block_state::free));
  BOOST_TEST(next.of.all.used == 4096U);
}

BOOST_AUTO_TEST_CASE(a_block_that_was_being_written_is_set_aside_for_the_sessions_that_its_record_names) {
  session& writing = attach(in);
  attach(in);
  const block_ref ref = blank(in);
  of.in_hands.quarantine(in, home, ref, {{writing.number, 1}});
  taken = &next.take(in);
  BOOST_TEST(next.take(home, home.what).has_value());
  for (const session* each : in.sessions) next.take(*each);
  BOOST_TEST(rebuild() == 0U);
  const std::vector<writer>& writers = taken->quarantined.at(ref.bits);
  BOOST_REQUIRE(writers.size() == 1U);
  BOOST_TEST((writers[0].by == writing.number));
  BOOST_TEST(writers[0].guessed);  // which of the parts, the record does not say
}

BOOST_AUTO_TEST_CASE(memory_that_a_read_of_the_dead_worker_may_fill_is_not_free) {
  const block_ref ref = blank(in);
  of.all.record_of(home, ref).set_state(block_state::loading);
  BOOST_TEST(take_over() == 0U);
  BOOST_TEST(next.of.transfers.recovered().size() == 1U);
  BOOST_TEST((state_of(in, ref) == block_state::loading));
  BOOST_TEST(std::ranges::count(pool_in(*taken).free, ref) == 0);
  next.of.edges.release_loading(0);
  BOOST_TEST((state_of(in, ref) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_slab_that_makes_no_sense_is_refused) {
  BOOST_TEST((refusal(home.what) == error_code::layout_mismatch));  // its instance is not here
  taken = &next.take(in);
  const auto refuses = [&](auto member, auto value) {
    slab_description what = home.what;
    what.*member = value;
    BOOST_TEST((refusal(what) == error_code::layout_mismatch));
  };
  refuses(&slab_description::group, 1U);
  refuses(&slab_description::index, 0U);  // no block of it could be named
  refuses(&slab_description::index, block_ref::max_slabs);
  refuses(&slab_description::count, 0U);
  refuses(&slab_description::first_version, memory::max_version_entries - home.what.count + 1);
  refuses(&slab_description::first_record, memory::max_records - home.what.count + 1);
  refuses(&slab_description::stride, home.what.stride + 1);
  BOOST_TEST(next.of.all.assigned == 0U);
  BOOST_TEST((refusal(home.what) == error_code::ok));
}

BOOST_AUTO_TEST_CASE(a_slab_whose_numbers_another_one_has_is_refused_and_takes_none) {
  taken = &next.take(in);
  BOOST_TEST((refusal(home.what) == error_code::ok));
  BOOST_TEST((refusal(home.what) == error_code::layout_mismatch));
  slab_description other = home.what;
  other.index = home.what.index + 1;
  other.first_record = home.what.first_record + home.what.count;
  BOOST_TEST((refusal(other) == error_code::layout_mismatch));  // the versions are the first one's
  other.first_version = home.what.first_version + home.what.count;
  other.index = home.what.index;
  BOOST_TEST((refusal(other) == error_code::layout_mismatch));
  other.index = home.what.index + 1;
  BOOST_TEST((refusal(other) == error_code::ok));
  BOOST_TEST(pool_in(*taken).slabs.size() == 2U);
}

BOOST_AUTO_TEST_CASE(a_slab_that_was_being_given_up_is_closed) {
  in.versions.slab(home.what.index)->state.store(static_cast<std::uint32_t>(memory::slab_state::retired));
  taken = &next.take(in);
  BOOST_TEST((refusal(home.what) == error_code::closed));
  BOOST_TEST(pool_in(*taken).slabs.empty());
  BOOST_TEST(taken->next_slab > home.what.index);  // clients know the number
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::recovery_test
