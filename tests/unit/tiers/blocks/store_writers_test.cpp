// Who may still be writing a block: its memory is nobody else's before each part of each hand-out has ended.
#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_writers_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;
using memory::completion_kind;
using memory::operation;

namespace {

constexpr std::uint64_t left = 1;
constexpr std::uint64_t right = 2;
constexpr auto revoked = static_cast<std::uint16_t>(error_code::revoked);
constexpr auto not_reserved = static_cast<std::uint16_t>(error_code::not_reserved);
constexpr auto invalid_argument = static_cast<std::uint16_t>(error_code::invalid_argument);

struct fixture {
  node at{options_of(16 << 20)};
  instance_number in = at.add(spec_of("one", 8192, 2));
  client a{at, in};
  client b{at, in};
  ~fixture() { BOOST_TEST(at.broken_identity() == ""); }

  blank reserve(client& client, std::uint64_t parts, std::uint64_t key = 1) {
    const auto got = client.reserve(key_of(key), parts);
    BOOST_REQUIRE((got.kind == completion_kind::reserved));
    BOOST_TEST(got.value == parts);
    return {block_ref::from_bits(got.block), got.grant_version};
  }
  std::uint16_t release(client& client, const blank& what, std::uint64_t parts) {
    return client.ask({client.entry_of(operation::release, what, parts)}).code;
  }
  void time_out() {
    at.now += at.options.reserve_timeout;
    at.tier->tick(at.now);
  }
  block_state state_of(const blank& what) { return at.record(in, what.ref).state(); }
  void meet_again(const client& who, std::vector<held_parts> held) {
    BOOST_TEST(at.tier->reattach_session(who.number, held).has_value());
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(store_writers, fixture)

BOOST_AUTO_TEST_CASE(a_late_commit_of_one_part_says_nothing_of_another_part_of_the_same_session) {
  const blank block = reserve(a, left);
  BOOST_TEST((reserve(a, right).ref == block.ref));
  time_out();
  BOOST_TEST(a.finish(block, left).code == revoked);
  BOOST_TEST((state_of(block) == block_state::quarantined));
  BOOST_TEST(a.finish(block, left).code == not_reserved);  // once more
  BOOST_TEST((state_of(block) == block_state::quarantined));
  BOOST_TEST(a.finish(block, right).code == revoked);
  BOOST_TEST((state_of(block) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_late_release_of_one_part_says_nothing_of_another_part_of_the_same_session) {
  const blank block = reserve(a, left);
  reserve(a, right);
  BOOST_TEST(b.put(key_of(1)).value == 1U);  // takes the key away
  for (int i = 0; i < 2; ++i) {
    BOOST_TEST(release(a, block, left) == 0U);
    BOOST_TEST((state_of(block) == block_state::quarantined));
  }
  BOOST_TEST(release(a, block, right) == 0U);
  BOOST_TEST((state_of(block) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_word_about_parts_that_a_session_does_not_have_ends_nothing) {
  const blank block = reserve(a, left);
  reserve(b, right);
  BOOST_TEST(release(b, block, left) == 0U);
  BOOST_TEST((a.reserve(key_of(1), left).kind == completion_kind::pending));  // still its own
  time_out();
  BOOST_TEST(release(b, block, left) == 0U);
  BOOST_TEST(b.finish(block, left).code == not_reserved);
  BOOST_TEST(release(b, block, right) == 0U);
  BOOST_TEST((state_of(block) == block_state::quarantined));
  BOOST_TEST(a.finish(block, left).code == revoked);
  BOOST_TEST((state_of(block) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_session_that_has_nothing_of_a_block_does_not_take_the_key_from_its_writers) {
  const blank block = reserve(a, left);
  BOOST_TEST(a.finish(block, left).code == 0U);
  BOOST_TEST(release(b, block, right) == 0U);
  BOOST_TEST(release(a, block, left) == 0U);  // it is written
  reserve(b, right);
  BOOST_TEST(b.finish(block, right).value == 1U);
}

BOOST_AUTO_TEST_CASE(all_parts_is_no_word_where_they_came_in_several_answers) {
  const blank block = reserve(a, left);
  reserve(a, right);
  BOOST_TEST(release(a, block, 0) == invalid_argument);
  BOOST_TEST(a.finish(block, left).code == 0U);
  BOOST_TEST(a.finish(block, right).value == 1U);
  const blank other = reserve(a, left | right, 2);
  BOOST_TEST(release(a, other, 0) == 0U);
  BOOST_TEST((state_of(other) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_stale_word_of_an_earlier_hand_out_ends_nothing_of_a_later_one) {
  const blank first = reserve(a, left);
  release(a, first, left);
  const blank later = reserve(a, left, 2);
  BOOST_REQUIRE((later.ref == first.ref));
  time_out();
  BOOST_TEST(a.finish(first, left).code == not_reserved);
  BOOST_TEST(release(a, first, left) == not_reserved);
  BOOST_TEST((state_of(later) == block_state::quarantined));
  BOOST_TEST(a.finish(later, left).code == revoked);
}

BOOST_AUTO_TEST_CASE(a_part_that_was_given_back_is_never_handed_to_the_same_session_again_under_one_version) {
  const blank block = reserve(a, left);
  reserve(b, right);
  BOOST_TEST(release(a, block, left) == 0U);
  const blank again = reserve(a, left);  // the release may come twice, if the worker dies before the ring goes on
  BOOST_TEST((again.ref != block.ref));
  BOOST_TEST((state_of(block) == block_state::quarantined));
  BOOST_TEST(b.finish(block, right).code == revoked);
  BOOST_TEST((state_of(block) == block_state::free));
  reserve(b, right);
  BOOST_TEST(b.finish(again, right).code == 0U);
  BOOST_TEST(a.finish(again, left).value == 1U);
}

BOOST_AUTO_TEST_CASE(a_session_says_after_a_restart_which_parts_it_still_writes) {
  const blank block = reserve(a, left);
  reserve(a, right);
  at.restart();
  meet_again(a, {{block.ref.bits, block.version, left | right}});
  BOOST_TEST(a.finish(block, left).code == revoked);
  BOOST_TEST((state_of(block) == block_state::quarantined));
  meet_again(a, {{block.ref.bits, block.version, right}});
  BOOST_TEST((state_of(block) == block_state::quarantined));
  BOOST_TEST(a.finish(block, right).code == revoked);
  BOOST_TEST((state_of(block) == block_state::free));
}

BOOST_AUTO_TEST_CASE(words_before_and_after_a_session_is_back_add_up) {
  const blank block = reserve(a, left);
  reserve(a, right);
  at.restart();
  BOOST_TEST(a.finish(block, left).code == revoked);  // was in the ring when the worker died
  BOOST_TEST((state_of(block) == block_state::quarantined));
  meet_again(a, {{block.ref.bits, block.version, left | right}});
  BOOST_TEST((state_of(block) == block_state::quarantined));
  BOOST_TEST(release(a, block, right) == 0U);
  BOOST_TEST((state_of(block) == block_state::free));
}

BOOST_AUTO_TEST_CASE(what_a_session_does_not_name_after_a_restart_is_free) {
  const blank one = reserve(a, left, 1);
  const blank two = reserve(a, left, 2);
  at.restart();
  meet_again(a, {{two.ref.bits, two.version + 1, left}, {one.ref.bits, one.version, left}});
  BOOST_TEST((state_of(one) == block_state::quarantined));
  BOOST_TEST((state_of(two) == block_state::free));
}

BOOST_AUTO_TEST_CASE(an_older_client_does_not_say_which_parts_and_keeps_all_until_its_words_or_its_death) {
  const blank block = reserve(a, left);
  at.restart();
  meet_again(a, {{block.ref.bits, block.version, ~std::uint64_t{0}}});
  BOOST_TEST(a.finish(block, left).code == revoked);
  BOOST_TEST(release(a, block, 0) == invalid_argument);  // its answer to a batch that was carried out twice
  BOOST_TEST((state_of(block) == block_state::quarantined));
  at.bury(a.number);
  BOOST_TEST((state_of(block) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_list_that_is_older_than_a_hand_out_does_not_end_it) {
  at.restart();
  const blank block = reserve(a, left);  // of this worker, while the list was on its way
  BOOST_TEST(b.put(key_of(1)).value == 1U);
  meet_again(a, {});
  BOOST_TEST((state_of(block) == block_state::quarantined));
  BOOST_TEST(a.finish(block, left).code == revoked);
  BOOST_TEST((state_of(block) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_client_that_cannot_tell_yet_keeps_what_it_had) {
  const blank block = reserve(a, left);
  at.restart();
  BOOST_TEST(at.tier->reattach_session(a.number, std::nullopt).has_value());
  BOOST_TEST((state_of(block) == block_state::quarantined));
  meet_again(a, {});
  BOOST_TEST((state_of(block) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_reserve_that_is_carried_out_twice_says_which_parts_its_second_answer_is_about) {
  const auto entry = a.entry_of(operation::reserve, key_of(1), right);
  a.run({entry});
  at.restart();
  const auto repeated = a.run({entry}).front();  // nobody waits for this answer any more
  const blank block{block_ref::from_bits(repeated.block), repeated.grant_version};
  reserve(a, left);  // another thread, the same block
  BOOST_TEST(release(a, block, repeated.value) == 0U);
  BOOST_TEST((state_of(block) == block_state::pending));
  BOOST_TEST((b.reserve(key_of(1), left).kind == completion_kind::pending));
  reserve(b, right);
  BOOST_TEST(b.finish(block, right).code == 0U);
  BOOST_TEST(a.finish(block, left).value == 1U);
}

BOOST_AUTO_TEST_CASE(a_release_and_a_reserve_that_are_carried_out_twice_leave_the_second_hand_out_alone) {
  const blank block = reserve(a, left);
  reserve(b, right);
  const auto entries =
      std::vector{a.entry_of(operation::release, block, left), a.entry_of(operation::reserve, key_of(1), left)};
  const auto answers = a.run(entries);
  const blank mine{block_ref::from_bits(answers[0].block),
                   answers[0].grant_version};  // a thread writes it from here on
  at.restart();
  a.run(entries);
  BOOST_TEST((state_of(mine) == block_state::quarantined));
  meet_again(b, {});
  meet_again(a, {{mine.ref.bits, mine.version, left}});
  BOOST_TEST((state_of(mine) == block_state::quarantined));
  BOOST_TEST(a.finish(mine, left).code == revoked);
  BOOST_TEST((state_of(mine) == block_state::free));
}

BOOST_AUTO_TEST_CASE(a_closed_socket_and_words_that_were_in_the_ring_end_part_by_part) {
  const blank block = reserve(a, left);
  reserve(a, right);
  at.tier->disconnect_session(a.number, at.now);
  at.tier->disconnect_session(a.number, at.now);
  BOOST_TEST((state_of(block) == block_state::quarantined));
  BOOST_TEST(release(a, block, left) == 0U);
  BOOST_TEST((state_of(block) == block_state::quarantined));
  at.bury(a.number);
  BOOST_TEST((state_of(block) == block_state::free));
}

// ---------------------------------------------------------------------------------------------- numbers, suspects

BOOST_AUTO_TEST_CASE(a_second_session_of_one_number_is_refused) {
  const auto again = at.tier->add_session(a.number, in, at.session(b.number));
  BOOST_REQUIRE(!again.has_value());
  BOOST_TEST(again.error().message().find("number") != std::string::npos);
  BOOST_TEST(!at.tier->recover_session(a.number, in, at.session(b.number)).has_value());
  // Block records keep the low half.
  BOOST_TEST(!at.tier->add_session(a.number | std::uint64_t{3} << 32, in, at.session(b.number)).has_value());
  const auto slot = [&] {
    a.put(key_of(1));
    return a.pin(key_of(1));
  }();
  b.remove(key_of(1));
  BOOST_TEST(at.status().zombie == 1U);  // the pins of the first one are still looked at
  a.unpin(*slot);
}

BOOST_AUTO_TEST_CASE(a_session_that_two_workers_died_of_is_not_served_and_keeps_its_memory_until_its_process_is_dead) {
  a.put(key_of(5));
  const auto slot = a.pin(key_of(5));
  const blank block = reserve(a, left);
  const auto die_of = [&](session_number session) {
    at.guard().begin(session);
    at.restart();
  };
  die_of(a.number);
  BOOST_TEST(at.tier->suspects().empty());
  die_of(a.number);
  BOOST_REQUIRE(at.tier->suspects().size() == 1U);
  BOOST_TEST(at.tier->suspects()[0] == a.number);
  BOOST_TEST(a.run({a.entry_of(operation::clear, blank{})}).empty());
  BOOST_TEST(at.present(in) == 1U);
  BOOST_TEST(!at.tier->reattach_session(a.number, std::span<const held_parts>{}).has_value());
  BOOST_TEST((state_of(block) == block_state::quarantined));
  b.remove(key_of(5));
  BOOST_TEST(at.status().zombie == 1U);
  BOOST_TEST(holds(a.pinned_bytes(*slot), a.block_bytes, key_of(5)));
  at.bury(a.number);
  BOOST_TEST((state_of(block) == block_state::free));
  BOOST_TEST(at.status().zombie == 0U);
  BOOST_TEST(at.guard().counted().empty());
}

BOOST_AUTO_TEST_CASE(a_batch_that_goes_well_clears_its_session) {
  for (int i = 0; i < 4; ++i) {
    at.guard().begin(a.number);
    at.restart();
    a.put(key_of(1));
  }
  BOOST_TEST(at.tier->suspects().empty());
}

// ---------------------------------------------------------------------------------------------- where numbers end

BOOST_AUTO_TEST_CASE(grant_versions_go_around) {
  const auto first = a.obtain();
  at.record(in, first->ref).grant_version.store(0xffffffff);
  a.ask({a.entry_of(operation::release, blank{first->ref, 0xffffffff})});
  const auto around = a.obtain();
  BOOST_REQUIRE((around->ref == first->ref));
  BOOST_TEST(around->version == 0U);
  fill(at.bytes(in, around->ref), a.block_bytes, key_of(1));
  BOOST_TEST(a.ask({a.commit_of(blank{first->ref, 0xffffffff}, key_of(2))}).code == not_reserved);
  BOOST_TEST(a.ask({a.commit_of(*around, key_of(1))}).value == 1U);
  BOOST_TEST((b.read(key_of(1)) == look::right));
  at.restart();
  BOOST_TEST((b.read(key_of(1)) == look::right));
}

BOOST_AUTO_TEST_CASE(version_bits_of_index_values_go_around) {
  const auto got = a.obtain();
  const std::uint32_t version_index = at.slab(in, got->ref.slab())->first_version + got->ref.block();
  at.versions(in).set_version(version_index, (std::uint64_t{1} << (memory::index_value::version_bits + 1)) - 3);
  a.ask({a.entry_of(operation::release, *got)});
  for (std::uint64_t k = 1; k <= 4; ++k) {
    BOOST_TEST(a.put(key_of(k)).value == 1U);
    BOOST_TEST((memory::index_value::ref(at.index(in).find(reduce_key(key_of(k).view(), 0))) == got->ref));
    BOOST_TEST((b.read(key_of(k)) == look::right));
    BOOST_TEST(at.restart() == 1U);
    BOOST_TEST((b.read(key_of(k)) == look::right));
    b.remove(key_of(k));
  }
  BOOST_TEST(at.versions(in).version(version_index) > std::uint64_t{1} << (memory::index_value::version_bits + 1));
}

BOOST_AUTO_TEST_CASE(deadlines_reach_over_the_end_of_the_clock) {
  at.now = boot_time_of(0xffffffff - 50);
  const blank block = reserve(a, left);
  for (tenths i(1); i < at.options.reserve_timeout; i += tenths(20)) {
    at.tier->tick(at.now + i);
    BOOST_REQUIRE((state_of(block) == block_state::pending));
  }
  time_out();
  BOOST_TEST((state_of(block) == block_state::quarantined));
  BOOST_TEST(a.finish(block, left).code == revoked);
}

BOOST_AUTO_TEST_CASE(what_expires_does_so_over_the_end_of_the_clock) {
  at.tier->set_groups({{"one", {.ttl = tenths(100)}}}, at.now);
  at.now = boot_time_of(0xffffffff - 10);
  a.put(key_of(1));
  at.now += tenths(50);
  at.tier->tick(at.now);
  BOOST_TEST(at.present(in) == 1U);
  at.now += tenths(50);
  at.tier->tick(at.now);
  BOOST_TEST(at.present(in) == 0U);
}

BOOST_AUTO_TEST_CASE(numbers_of_slabs_come_again_when_no_session_is_left_that_may_know_them) {
  using memory::slab_state;
  const auto last = block_ref::max_slabs - 1;
  slab_description what = at.slabs.begin()->second.what;
  what.index = last;
  what.first_record += 100'000;
  what.first_version += 100'000;
  auto memory = std::move(*make_slab_memory(what, false, -1));
  const auto copy = [&] {
    return std::move(
        *memory::segment::map(std::move(*memory.fd().duplicate()), memory.size(), memory::access::read_write));
  };
  at.slabs.insert_or_assign(std::pair(in, last), node::kept_slab{what, copy()});
  at.restart();
  BOOST_TEST(at.slab(in, last) != nullptr);
  const auto blocks_of_two = std::uint64_t{2} * what.count;
  for (std::uint64_t k = 0; k < blocks_of_two; ++k) a.put(key_of(k));
  a.put(key_of(blocks_of_two));  // no further slab has a number: an older block goes
  BOOST_TEST(at.slabs.size() == 2U);
  BOOST_TEST(at.present(in) <= blocks_of_two);
  at.bury(a.number);
  at.bury(b.number);
  client later(at, in);
  for (std::uint64_t k = 0; k <= blocks_of_two; ++k) later.put(key_of(1000 + k));
  BOOST_TEST(at.slabs.size() == 3U);
  BOOST_TEST(at.slab(in, 2) != nullptr);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_writers_test
