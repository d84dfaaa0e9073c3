// Grants, commits, reservations, removals: what a block goes through while nothing is scarce.
#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_blocks_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;
using memory::completion_kind;
using memory::grant_slot;
using memory::operation;

namespace {

constexpr std::uint64_t mib = 1 << 20;

error_code code_of(const memory::completion& answer) {
  return static_cast<error_code>(answer.code);
}
bool ok(const memory::completion& answer) {
  return code_of(answer) == error_code::ok;
}
bool refused_as(const memory::completion& answer, error_code code) {
  return code_of(answer) == code;
}

/// A node with one instance and two sessions.
struct fixture {
  node at{options_of(16 * mib)};
  instance_number in = at.add(spec_of("one", 4096, 2));
  client a{at, in};
  client b{at, in};
  ~fixture() { BOOST_TEST(at.broken_identity() == ""); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(store_blocks, fixture)

BOOST_AUTO_TEST_CASE(a_commit_shows_the_block_to_every_session) {
  BOOST_TEST((b.read(key_of(1)) == look::miss));
  const auto answer = a.put(key_of(1));
  BOOST_TEST(ok(answer));
  BOOST_TEST(answer.value == 1U);
  BOOST_TEST((a.read(key_of(1)) == look::right));
  BOOST_TEST((b.read(key_of(1)) == look::right));
  BOOST_TEST((b.read(key_of(2)) == look::miss));
}

BOOST_AUTO_TEST_CASE(nothing_is_visible_before_the_commit) {
  const auto got = a.obtain();
  BOOST_REQUIRE(got.has_value());
  fill(at.bytes(in, got->ref), a.block_bytes, key_of(1));
  BOOST_TEST((a.read(key_of(1)) == look::miss));
  BOOST_TEST((at.record(in, got->ref).state() == block_state::granted));
}

BOOST_AUTO_TEST_CASE(keys_of_every_width_are_kept) {
  for (std::size_t width = min_key_bytes; width <= max_key_bytes; ++width)
    BOOST_TEST(a.put(key_of(5, width)).value == 1U);
  for (std::size_t width = min_key_bytes; width <= max_key_bytes; ++width) {
    BOOST_TEST((b.read(key_of(5, width)) == look::right));
  }
}

BOOST_AUTO_TEST_CASE(the_second_of_two_equal_keys_in_a_batch_is_a_duplicate) {
  const std::array keys{key_of(1), key_of(1), key_of(2)};
  const auto answer = a.put(keys);
  BOOST_TEST(ok(answer));
  BOOST_TEST(answer.value == 2U);
  BOOST_TEST(at.status().counters.duplicates == 1U);
  BOOST_TEST(at.status().granted == 0U);
}

BOOST_AUTO_TEST_CASE(a_key_that_another_session_stored_is_a_duplicate) {
  a.put(key_of(1));
  const auto answer = b.put(key_of(1));
  BOOST_TEST(ok(answer));
  BOOST_TEST(answer.value == 0U);
  BOOST_TEST(at.present(in) == 1U);
}

BOOST_AUTO_TEST_CASE(a_commit_returns_blank_blocks_when_asked) {
  auto got = a.obtain();
  auto entry = a.commit_of(*got, key_of(1));
  entry.want = 3;
  BOOST_TEST(a.ask({entry}).value == 1U);
  BOOST_TEST(at.status().granted == 3U);
  BOOST_TEST(a.take().has_value());
}

BOOST_AUTO_TEST_CASE(a_block_is_committed_once) {
  const auto got = a.obtain();
  BOOST_TEST(ok(a.ask({a.commit_of(*got, key_of(1))})));
  BOOST_TEST(refused_as(a.ask({a.commit_of(*got, key_of(1))}), error_code::not_reserved));
  BOOST_TEST(refused_as(a.ask({a.commit_of(*got, key_of(2))}), error_code::not_reserved));
  BOOST_TEST(at.present(in) == 1U);
  BOOST_TEST(at.status().counters.refused_commits == 2U);
}

BOOST_AUTO_TEST_CASE(commits_that_make_no_sense_are_refused) {
  const auto got = a.obtain();
  BOOST_TEST(refused_as(b.ask({b.commit_of(*got, key_of(1))}), error_code::not_reserved));
  auto wrong_version = *got;
  ++wrong_version.version;
  BOOST_TEST(refused_as(a.ask({a.commit_of(wrong_version, key_of(1))}), error_code::not_reserved));
  BOOST_TEST(refused_as(a.ask({a.commit_of(*got, key_of(1), 1)}), error_code::malformed));
  BOOST_TEST(refused_as(a.ask({a.commit_of({block_ref(99, 0), 1}, key_of(1))}), error_code::not_reserved));
  BOOST_TEST(refused_as(a.ask({a.commit_of({block_ref(1, block_ref::max_blocks_per_slab - 1), 1}, key_of(1))}),
                        error_code::not_reserved));
  auto short_key = a.commit_of(*got, key_of(1));
  short_key.key_size = 7;
  BOOST_TEST(refused_as(a.ask({short_key}), error_code::malformed));
  short_key.key_size = 65;
  BOOST_TEST(refused_as(a.ask({short_key}), error_code::malformed));
  auto nonsense = a.commit_of(*got, key_of(1));
  nonsense.op = static_cast<operation>(77);
  BOOST_TEST(refused_as(a.ask({nonsense}), error_code::malformed));
  BOOST_TEST(at.present(in) == 0U);
  BOOST_TEST(ok(a.ask({a.commit_of(*got, key_of(1))})));  // the grant survived all that
}

BOOST_AUTO_TEST_CASE(the_first_refusal_of_a_batch_is_named_and_the_rest_goes_on) {
  auto first = *a.obtain();
  auto second = *a.obtain();
  fill(at.bytes(in, second.ref), a.block_bytes, key_of(2));
  ++first.version;
  const auto answer =
      a.ask({a.commit_of(second, key_of(2)), a.commit_of(first, key_of(1)), a.commit_of(first, key_of(3))});
  BOOST_TEST(refused_as(answer, error_code::not_reserved));
  BOOST_TEST(answer.index == 1U);
  BOOST_TEST(answer.value == 1U);
  BOOST_TEST((a.read(key_of(2)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_block_of_two_parts_shows_when_both_are_written) {
  const auto mine = a.reserve(key_of(1), 1);
  BOOST_REQUIRE((mine.kind == completion_kind::reserved));
  const auto theirs = b.reserve(key_of(1), 2);
  BOOST_REQUIRE((theirs.kind == completion_kind::reserved));
  BOOST_TEST(mine.block == theirs.block);
  BOOST_TEST(mine.grant_version == theirs.grant_version);
  const blank block{block_ref::from_bits(mine.block), mine.grant_version};
  fill(at.bytes(in, block.ref), a.block_bytes, key_of(1));
  BOOST_TEST(ok(a.finish(block, 1)));
  BOOST_TEST((a.read(key_of(1)) == look::miss));
  BOOST_TEST(ok(b.finish(block, 2)));
  BOOST_TEST((a.read(key_of(1)) == look::right));
  BOOST_TEST((a.reserve(key_of(1), 1).kind == completion_kind::present));
}

BOOST_AUTO_TEST_CASE(a_part_has_one_writer) {
  BOOST_TEST((a.reserve(key_of(1), 1).kind == completion_kind::reserved));
  BOOST_TEST((b.reserve(key_of(1), 1).kind == completion_kind::pending));
  BOOST_TEST((b.reserve(key_of(1), 3).kind == completion_kind::pending));
  BOOST_TEST((a.reserve(key_of(1), 1).kind == completion_kind::pending));
  BOOST_TEST((b.reserve(key_of(1), 2).kind == completion_kind::reserved));
}

BOOST_AUTO_TEST_CASE(reservations_of_parts_that_do_not_exist_are_refused) {
  for (const std::uint64_t parts : {std::uint64_t{0}, std::uint64_t{4}, ~std::uint64_t{0}}) {
    const auto answer = a.reserve(key_of(1), parts);
    BOOST_TEST((answer.kind == completion_kind::refused));
    BOOST_TEST(refused_as(answer, error_code::invalid_argument));
  }
}

BOOST_AUTO_TEST_CASE(parts_are_finished_once_and_by_their_writer) {
  const auto got = a.reserve(key_of(1), 1);
  const blank block{block_ref::from_bits(got.block), got.grant_version};
  BOOST_TEST(refused_as(b.finish(block, 1), error_code::not_reserved));
  BOOST_TEST(refused_as(a.finish(block, 2), error_code::not_reserved));
  BOOST_TEST(refused_as(a.finish(block, 0), error_code::not_reserved));
  BOOST_TEST(refused_as(a.finish({block.ref, block.version + 1}, 1), error_code::not_reserved));
  BOOST_TEST(refused_as(a.ask({a.commit_of(block, key_of(1))}), error_code::not_reserved));
  BOOST_TEST(ok(a.finish(block, 1)));
  BOOST_TEST(refused_as(a.finish(block, 1), error_code::not_reserved));
  b.reserve(key_of(1), 2);
  BOOST_TEST(ok(b.finish(block, 2)));
  BOOST_TEST(refused_as(b.finish(block, 2), error_code::not_reserved));
}

BOOST_AUTO_TEST_CASE(the_first_commit_of_a_key_wins_over_a_reservation) {
  const auto got = a.reserve(key_of(1), 3);
  const blank block{block_ref::from_bits(got.block), got.grant_version};
  BOOST_TEST(b.put(key_of(1)).value == 1U);
  BOOST_TEST((at.record(in, block.ref).state() == block_state::quarantined));
  BOOST_TEST(refused_as(a.finish(block, 3), error_code::revoked));
  BOOST_TEST((at.record(in, block.ref).state() == block_state::free));  // it has stopped writing
  BOOST_TEST((a.read(key_of(1)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_writer_that_gives_up_frees_the_key) {
  const auto got = a.reserve(key_of(1), 3);
  const blank block{block_ref::from_bits(got.block), got.grant_version};
  BOOST_TEST(ok(a.ask({a.entry_of(operation::release, block)})));
  BOOST_TEST((at.record(in, block.ref).state() == block_state::free));
  BOOST_TEST((b.reserve(key_of(1), 3).kind == completion_kind::reserved));
}

BOOST_AUTO_TEST_CASE(a_part_that_was_given_up_can_be_taken_by_another_session) {
  const auto got = a.reserve(key_of(1), 1);
  const blank block{block_ref::from_bits(got.block), got.grant_version};
  b.reserve(key_of(1), 2);
  BOOST_TEST(ok(a.ask({a.entry_of(operation::release, block)})));
  BOOST_TEST((b.reserve(key_of(1), 1).kind == completion_kind::reserved));
  BOOST_TEST(ok(b.finish(block, 3)));
  BOOST_TEST(at.present(in) == 1U);
}

BOOST_AUTO_TEST_CASE(blank_blocks_can_be_given_back) {
  const auto got = a.obtain();
  BOOST_TEST(ok(a.ask({a.entry_of(operation::release, *got)})));
  BOOST_TEST((at.record(in, got->ref).state() == block_state::free));
  BOOST_TEST(refused_as(a.ask({a.commit_of(*got, key_of(1))}), error_code::not_reserved));
}

BOOST_AUTO_TEST_CASE(removed_keys_are_misses_and_their_memory_is_free) {
  const std::array keys{key_of(1), key_of(2), key_of(3)};
  a.put(keys);
  const auto answer = b.ask({b.entry_of(operation::remove, key_of(1)), b.entry_of(operation::remove, key_of(1)),
                             b.entry_of(operation::remove, key_of(7)), b.entry_of(operation::remove, key_of(3))});
  BOOST_TEST(ok(answer));
  BOOST_TEST(answer.value == 2U);
  BOOST_TEST((a.read(key_of(1)) == look::miss));
  BOOST_TEST((a.read(key_of(2)) == look::right));
  BOOST_TEST(at.present(in) == 1U);
  BOOST_TEST(a.put(key_of(1)).value == 1U);
}

BOOST_AUTO_TEST_CASE(a_pinned_block_that_is_removed_keeps_its_memory_until_the_pin_goes) {
  a.put(key_of(1));
  const auto slot = b.pin(key_of(1));
  BOOST_REQUIRE(slot.has_value());
  const std::byte* held = b.pinned_bytes(*slot);
  const std::uint64_t used = at.status().used;
  BOOST_TEST(a.remove(key_of(1)).value == 1U);
  BOOST_TEST((b.read(key_of(1)) == look::miss));
  BOOST_TEST(at.status().zombie == 1U);
  BOOST_TEST(at.status().used == used);
  a.put(key_of(1));  // a new block under the key
  at.tier->tick(at.now);
  BOOST_TEST(at.status().zombie == 1U);
  BOOST_TEST(holds(held, b.block_bytes, key_of(1)));
  BOOST_TEST(at.broken_identity() == "");
  b.unpin(*slot);
  at.tier->tick(at.now);
  BOOST_TEST(at.status().zombie == 0U);
  BOOST_TEST((b.read(key_of(1)) == look::right));
}

BOOST_AUTO_TEST_CASE(clear_forgets_the_instance_and_nothing_else) {
  const auto other = at.add(spec_of("two"));
  client c(at, other);
  for (std::uint64_t k = 0; k < 100; ++k) a.put(key_of(k));
  c.put(key_of(1));
  b.reserve(key_of(500), 1);
  const auto slot = b.pin(key_of(5));
  BOOST_TEST(a.ask({a.entry_of(operation::clear, blank{})}).value == 100U);
  BOOST_TEST(at.present(in) == 0U);
  BOOST_TEST(at.status().pending == 0U);
  BOOST_TEST(at.status().zombie == 1U);
  BOOST_TEST((c.read(key_of(1)) == look::right));
  b.unpin(*slot);
  at.tier->tick(at.now);
  BOOST_TEST(at.status().zombie == 0U);
  BOOST_TEST(at.tier->clear_instance("two", at.now).value_or(0) == 1U);
  BOOST_TEST(!at.tier->clear_instance("three", at.now).has_value());
  a.put(key_of(1));
  c.put(key_of(1));
  BOOST_TEST(at.tier->clear_all(at.now) == 2U);
}

BOOST_AUTO_TEST_CASE(the_same_key_in_two_instances_names_two_blocks) {
  const auto other = at.add(spec_of("two"));
  client c(at, other);
  a.put(key_of(1));
  BOOST_TEST((c.read(key_of(1)) == look::miss));
  BOOST_TEST(c.put(key_of(1)).value == 1U);
  c.remove(key_of(1));
  BOOST_TEST((a.read(key_of(1)) == look::right));
}

BOOST_AUTO_TEST_CASE(groups_are_cached_independently) {
  auto spec = spec_of("grouped");
  spec.groups.push_back({"window", {{"kv", 8192}}});
  const auto other = at.add(spec);
  client c(at, other);
  BOOST_TEST(c.put(key_of(1), 0).value == 1U);
  BOOST_TEST((c.read(key_of(1), 1) == look::miss));
  BOOST_TEST(c.put(key_of(1), 1).value == 1U);
  BOOST_TEST((c.read(key_of(1), 0) == look::right));
  BOOST_TEST((c.read(key_of(1), 1) == look::right));
  const auto got = c.obtain(1);
  BOOST_REQUIRE(got.has_value());
  BOOST_TEST(refused_as(c.ask({c.commit_of(*got, key_of(2), 0)}), error_code::not_reserved));
  BOOST_TEST(refused_as(c.ask({c.commit_of(*got, key_of(2), 2)}), error_code::malformed));
  BOOST_TEST(ok(c.ask({c.entry_of(operation::release, *got)})));
}

BOOST_AUTO_TEST_CASE(another_spec_under_the_same_id_is_refused_and_the_field_is_named) {
  auto spec = spec_of("one", 4096, 2);
  BOOST_TEST(at.tier->find_instance(spec)->value_or(0) == in);
  spec.dtype = "fp8";
  const auto refused = at.tier->find_instance(spec);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST((refused.error().code() == error_code::spec_mismatch));
  BOOST_TEST(refused.error().message().find("dtype") != std::string::npos);
  BOOST_TEST(!at.tier->find_instance(spec_of("unknown"))->has_value());
}

BOOST_AUTO_TEST_CASE(a_block_is_refused_where_the_water_marks_would_let_none_stay) {
  for (const std::uint64_t bytes : {4 * mib, 5 * mib, 6 * mib, 8 * mib, 9 * mib, 15 * mib}) {
    node small(options_of(16 * mib));
    const auto spec = spec_of("large", bytes);
    const bool fits = small.tier->check_fits(spec).has_value();
    BOOST_TEST(fits == (bytes <= 5 * mib));
    client only(small, small.add(spec));
    // As the client library stores: in exchange it asks for a blank block for the next put.
    bool stayed = true;
    const auto settle = [&] {  // as the tier does after each batch
      while (small.tier->evict_ahead(small.now)) continue;
    };
    for (std::uint64_t k = 1; k <= 4; ++k) {
      const auto got = only.obtain();
      BOOST_REQUIRE(got.has_value());
      settle();
      fill(small.bytes(only.in, got->ref), bytes, key_of(k));
      auto entry = only.commit_of(*got, key_of(k));
      entry.want = 1;
      entry.argument = memory::submission::spare_grants;
      BOOST_TEST(ok(only.ask({entry})));
      settle();
      stayed = stayed && only.read(key_of(k)) == look::right;
    }
    BOOST_TEST(stayed == fits);
  }
}

BOOST_AUTO_TEST_CASE(a_block_that_is_larger_than_the_tier_is_refused) {
  BOOST_TEST(at.tier->check_fits(spec_of("large", 4 * mib)).has_value());
  const auto refused = at.tier->check_fits(spec_of("large", 16 * mib));
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST(refused.error().message().find("dram.capacity") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_checksum_is_taken_at_commit_when_asked_for) {
  auto options = options_of(16 * mib);
  options.checksum_at_commit = true;
  node checked(options);
  client c(checked, checked.add(spec_of("one")));
  c.put(key_of(1));
  const auto value = checked.index(c.in).find(reduce_key(key_of(1).view(), 0));
  const auto& record = checked.record(c.in, memory::index_value::ref(value));
  BOOST_TEST(record.flags == memory::block_record::flag_checksum);
  BOOST_TEST(record.checksum_or_writers.load() != 0U);
}

BOOST_AUTO_TEST_CASE(clients_get_read_only_descriptors_and_slabs) {
  a.put(key_of(1));
  const auto both = at.tier->descriptors(in);
  BOOST_REQUIRE(both.has_value());
  const auto& [index, versions] = *both;
  BOOST_TEST(
      !memory::segment::map(std::move(*index.duplicate()), memory::index_segment_bytes, memory::access::read_write));
  BOOST_TEST(!memory::segment::map(std::move(*versions.duplicate()), memory::version_table::segment_bytes,
                                   memory::access::read_write));
  BOOST_TEST(memory::segment::map(std::move(*index.duplicate()), memory::index_segment_bytes, memory::access::read_only)
                 .has_value());
  BOOST_TEST(at.tier->slab_descriptor(in, 1).has_value());
  BOOST_TEST(!at.tier->slab_descriptor(in, 77).has_value());
  BOOST_TEST(!at.tier->slab_descriptor(in + 1, 1).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

// ---------------------------------------------------------------------------------------------- sessions

BOOST_FIXTURE_TEST_SUITE(store_sessions, fixture)

BOOST_AUTO_TEST_CASE(the_death_of_a_session_frees_all_it_had) {
  a.grant(4);
  const auto taken = a.take();
  a.reserve(key_of(1), 1);
  a.put(key_of(2));
  const auto slot = a.pin(key_of(2));
  BOOST_REQUIRE((slot && taken));
  b.remove(key_of(2));
  BOOST_TEST(at.status().zombie == 1U);
  at.bury(a.number);
  const auto all = at.status();
  BOOST_TEST(all.used == 0U);
  BOOST_TEST(all.granted + all.pending + all.zombie + all.quarantined == 0U);
  BOOST_TEST((b.reserve(key_of(1), 3).kind == completion_kind::reserved));
}

BOOST_AUTO_TEST_CASE(a_pending_block_of_a_dead_writer_waits_for_the_living_one) {
  const auto got = a.reserve(key_of(1), 1);
  b.reserve(key_of(1), 2);
  const blank block{block_ref::from_bits(got.block), got.grant_version};
  at.bury(a.number);
  BOOST_TEST((at.record(in, block.ref).state() == block_state::quarantined));
  BOOST_TEST((b.reserve(key_of(1), 3).kind == completion_kind::reserved));  // the key is free at once
  BOOST_TEST(refused_as(b.finish(block, 2), error_code::revoked));
  BOOST_TEST((at.record(in, block.ref).state() == block_state::free));
}

BOOST_AUTO_TEST_CASE(the_pins_of_a_dead_session_hold_nothing) {
  b.put(key_of(1));
  BOOST_TEST(a.pin(key_of(1)).has_value());
  at.bury(a.number);
  b.remove(key_of(1));
  BOOST_TEST(at.status().zombie == 0U);
}

BOOST_AUTO_TEST_CASE(a_closed_socket_revokes_and_keeps_aside_what_may_still_be_written) {
  a.grant(4);
  const auto taken = a.take();
  const auto got = a.reserve(key_of(1), 3);
  at.tier->disconnect_session(a.number, at.now);
  auto all = at.status();
  BOOST_TEST(all.granted == 1U);  // what it took; the rest was idle
  BOOST_TEST(all.quarantined == 1U);
  BOOST_TEST(!a.take().has_value());
  BOOST_TEST(!all.sessions.empty());
  BOOST_TEST((b.reserve(key_of(1), 3).kind == completion_kind::reserved));
  const blank block{block_ref::from_bits(got.block), got.grant_version};
  BOOST_TEST(refused_as(a.finish(block, 3), error_code::revoked));
  at.bury(a.number);
  all = at.status();
  BOOST_TEST(all.granted + all.quarantined == 0U);
  BOOST_TEST(taken.has_value());
}

BOOST_AUTO_TEST_CASE(a_late_writer_is_refused_and_its_memory_comes_back) {
  const auto got = a.reserve(key_of(1), 3);
  const blank block{block_ref::from_bits(got.block), got.grant_version};
  at.now += at.options.reserve_timeout - tenths(1);
  at.tier->tick(at.now);
  BOOST_TEST(at.status().pending == 1U);
  at.now += tenths(1);
  at.tier->tick(at.now);
  BOOST_TEST(at.status().pending == 0U);
  BOOST_TEST(at.status().quarantined == 1U);
  BOOST_TEST(at.status().used == 4096U);  // charged
  BOOST_TEST(b.put(key_of(1)).value == 1U);
  BOOST_TEST(refused_as(a.finish(block, 3), error_code::revoked));
  BOOST_TEST(at.status().quarantined == 0U);
  BOOST_TEST((b.read(key_of(1)) == look::right));
}

BOOST_AUTO_TEST_CASE(each_finished_part_moves_the_deadline) {
  const auto got = a.reserve(key_of(1), 3);
  const blank block{block_ref::from_bits(got.block), got.grant_version};
  at.now += at.options.reserve_timeout - tenths(1);
  BOOST_TEST(ok(a.finish(block, 1)));
  at.now += tenths(2);
  at.tier->tick(at.now);
  BOOST_TEST(ok(a.finish(block, 2)));
}

BOOST_AUTO_TEST_CASE(idle_grants_are_revoked_by_compare_and_swap_taken_ones_are_not) {
  a.grant(3);
  const auto mine = a.take();
  at.tier->disconnect_session(a.number, at.now);
  BOOST_TEST(at.status().counters.revoked_grants == 2U);
  BOOST_TEST(at.status().granted == 1U);
  fill(at.bytes(in, mine->ref), a.block_bytes, key_of(9));
  BOOST_TEST((at.record(in, mine->ref).state() == block_state::granted));
}

BOOST_AUTO_TEST_CASE(blank_blocks_in_one_sessions_hands_are_a_share_of_the_tier) {
  const std::uint64_t given = a.grant(10'000);
  BOOST_TEST(given > 0U);
  BOOST_TEST(given <= 16 * mib / 4096 / 8 / 2);
}

BOOST_AUTO_TEST_CASE(a_session_never_holds_more_grants_than_its_table_has_places) {
  node large(options_of(512 * mib));
  client c(large, large.add(spec_of("one")));
  for (int i = 0; i < 20; ++i) c.grant(100);
  BOOST_TEST(large.status().granted <= memory::session_memory::grants);
  BOOST_TEST(large.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(a_batch_of_an_unknown_session_does_nothing) {
  batch work;
  work.session = 999;
  work.entries.push_back(a.entry_of(operation::clear, blank{}));
  BOOST_TEST(at.run(std::move(work)).empty());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_blocks_test
