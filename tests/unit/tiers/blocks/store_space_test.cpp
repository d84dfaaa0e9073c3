// Eviction, quotas, slabs that change hands: what happens when memory is scarce.
#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_space_test {

using namespace testing;
using memory::block_ref;
using memory::block_state;
using memory::completion_kind;
using memory::operation;

namespace {

constexpr std::uint64_t kib = 1 << 10;
constexpr std::uint64_t mib = 1 << 20;

error_code code_of(const memory::completion& answer) {
  return static_cast<error_code>(answer.code);
}

/// A tier of 4 slabs of 16 blocks.
constexpr std::uint64_t small_slab = 16 * 4096;
constexpr std::uint64_t small_capacity = 4 * (small_slab + 4096);
constexpr std::uint64_t small_blocks = 64;

/// Readers may pin all of it.
store_options with_all_pins(store_options options) {
  options.limits.pin_share = 1;
  return options;
}

struct fixture {
  explicit fixture(store_options options = options_of(small_capacity, small_slab))
      : at(with_all_pins(std::move(options))) {}
  node at;
  instance_number in = at.add(spec_of("one"));
  client a{at, in};
  client b{at, in};
  ~fixture() { BOOST_TEST(at.broken_identity() == ""); }

  /// Puts keys [first, last), one after the other.
  void put(std::uint64_t first, std::uint64_t last) {
    for (std::uint64_t k = first; k < last; ++k) BOOST_REQUIRE((code_of(a.put(key_of(k))) == error_code::ok));
  }
  std::uint64_t hits(std::uint64_t first, std::uint64_t last) {
    std::uint64_t found = 0;
    for (std::uint64_t k = first; k < last; ++k) {
      const look seen = b.read(key_of(k));
      BOOST_REQUIRE((seen != look::wrong));
      found += seen == look::right ? 1 : 0;
    }
    return found;
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(store_space, fixture)

BOOST_AUTO_TEST_CASE(the_tier_fills_up_before_anything_is_evicted) {
  put(0, small_blocks);
  BOOST_TEST(hits(0, small_blocks) == small_blocks);
  BOOST_TEST(at.status().counters.evicted == 0U);
  BOOST_TEST(at.status().slabs == 4U);
}

BOOST_AUTO_TEST_CASE(the_least_recently_used_blocks_go_first) {
  put(0, small_blocks);
  const std::array touched{key_of(0), key_of(3)};
  ++at.now;
  a.touch(touched);
  put(100, 110);
  BOOST_TEST((b.read(key_of(0)) == look::right));
  BOOST_TEST((b.read(key_of(3)) == look::right));
  for (const std::uint64_t gone : {1, 2, 4, 5, 6, 7, 8, 9, 10, 11}) BOOST_TEST((b.read(key_of(gone)) == look::miss));
  BOOST_TEST((b.read(key_of(12)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_touched_chain_loses_its_tail_before_its_head) {
  put(0, small_blocks);
  ++at.now;
  const std::array chain{key_of(10), key_of(11), key_of(12), key_of(13)};
  a.touch(chain);
  put(100, 100 + small_blocks - 2);
  BOOST_TEST((b.read(key_of(10)) == look::right));
  BOOST_TEST((b.read(key_of(11)) == look::right));
  BOOST_TEST((b.read(key_of(12)) == look::miss));
  BOOST_TEST((b.read(key_of(13)) == look::miss));
}

BOOST_AUTO_TEST_CASE(touches_of_blocks_that_are_not_there_harm_nothing) {
  put(0, 5);
  memory::submission entry;
  entry.op = operation::touch;
  memory::touch_runs runs{};
  runs.run[0] = memory::touch_runs::make(block_ref(77, 3), 5);
  runs.run[1] = memory::touch_runs::make(block_ref(1, 0), 0xffffff);  // past the end of the slab
  runs.run[2] = ~std::uint64_t{0};
  entry.key_size = 255;
  std::memcpy(entry.key, &runs, sizeof runs);
  BOOST_TEST(a.run({entry}).empty());  // no answer either
  BOOST_TEST(hits(0, 5) == 5U);
}

BOOST_AUTO_TEST_CASE(a_pinned_victim_stays_a_hit_under_a_higher_version) {
  put(0, small_blocks);
  const auto slot = b.pin(key_of(0));
  BOOST_REQUIRE(slot.has_value());
  const auto ref = block_ref::from_bits(at.session(b.number).pin(*slot).load());
  const std::uint64_t before = at.record(in, ref).version();
  put(100, 120);
  BOOST_TEST((a.read(key_of(0)) == look::right));
  BOOST_TEST(at.record(in, ref).version() > before);
  BOOST_TEST(at.record(in, ref).version() % 2 == 0U);
  BOOST_TEST(at.status().counters.pinned_victims > 0U);
  BOOST_TEST(holds(b.pinned_bytes(*slot), b.block_bytes, key_of(0)));
  b.unpin(*slot);
  ++at.now;  // for a tenth of a second the last look at the pins counts
  put(200, 200 + small_blocks);
  BOOST_TEST((a.read(key_of(0)) == look::miss));
}

BOOST_AUTO_TEST_CASE(there_is_no_space_at_once_when_all_is_pinned) {
  client reader(at, in, 128);
  put(0, small_blocks);
  for (std::uint64_t k = 0; k < small_blocks; ++k) BOOST_REQUIRE(reader.pin(key_of(k)).has_value());
  BOOST_TEST((code_of(a.put(key_of(100))) == error_code::no_space));
  const auto refused = a.reserve(key_of(101), 1);
  BOOST_TEST((refused.kind == completion_kind::refused));
  BOOST_TEST((code_of(refused) == error_code::no_space));
  BOOST_TEST(hits(0, small_blocks) == small_blocks);
  reader.unpin(17);
  BOOST_TEST((code_of(a.put(key_of(100))) == error_code::ok));
  BOOST_TEST(hits(0, small_blocks) == small_blocks - 1);
}

BOOST_AUTO_TEST_CASE(idle_grants_of_others_are_taken_back_before_a_put_fails) {
  client reader(at, in, 128);
  put(0, small_blocks - 2);
  for (std::uint64_t k = 0; k < small_blocks - 2; ++k) BOOST_REQUIRE(reader.pin(key_of(k)).has_value());
  BOOST_TEST(b.grant(2) > 0U);
  BOOST_TEST((code_of(a.put(key_of(100))) == error_code::ok));
  BOOST_TEST((code_of(a.put(key_of(101))) == error_code::ok));
  BOOST_TEST((code_of(a.put(key_of(102))) == error_code::ok));  // evicts one of the two
  BOOST_TEST(at.status().counters.revoked_grants == 2U);
  BOOST_TEST(!b.take().has_value());
}

BOOST_AUTO_TEST_CASE(zombies_are_rescanned_when_space_is_needed) {
  client reader(at, in, 128);
  put(0, small_blocks);
  for (std::uint64_t k = 0; k < small_blocks; ++k) reader.pin(key_of(k));
  a.ask({a.entry_of(operation::clear, blank{})});
  BOOST_TEST(at.status().zombie == small_blocks);
  BOOST_TEST((code_of(a.put(key_of(100))) == error_code::no_space));
  for (std::uint32_t slot = 0; slot < small_blocks; ++slot) reader.unpin(slot);
  BOOST_TEST((code_of(a.put(key_of(100))) == error_code::ok));
}

BOOST_AUTO_TEST_CASE(eviction_runs_ahead_of_need_between_the_water_marks) {
  at.tier->set_water_marks(0.75, 0.5);
  put(0, 60);
  while (at.tier->evict_ahead(at.now)) {
  }
  BOOST_TEST(at.present(in) <= 36U);
  BOOST_TEST(at.present(in) >= 30U);
  BOOST_TEST((b.read(key_of(59)) == look::right));
  BOOST_TEST((b.read(key_of(0)) == look::miss));
  const std::uint64_t after = at.present(in);
  BOOST_TEST(!at.tier->evict_ahead(at.now));
  BOOST_TEST(at.present(in) == after);
}

BOOST_AUTO_TEST_CASE(eviction_ahead_of_need_of_more_than_a_batch_reaches_the_low_water_mark) {
  constexpr std::uint64_t capacity = 64 * small_capacity;
  constexpr std::uint64_t blocks = capacity / 4096;
  fixture large(options_of(capacity, small_slab));
  large.put(0, blocks);
  BOOST_REQUIRE(large.at.present(large.in) > blocks * 92 / 100);
  large.at.tier->set_water_marks(0.9, 0.5);
  while (large.at.tier->evict_ahead(large.at.now)) continue;
  BOOST_TEST(large.at.present(large.in) <= blocks / 2);
  BOOST_TEST(large.at.present(large.in) >= blocks * 45 / 100);
}

BOOST_AUTO_TEST_CASE(eviction_ahead_of_need_ends_when_all_is_pinned) {
  client reader(at, in, 128);
  put(0, small_blocks);
  for (std::uint64_t k = 0; k < small_blocks; ++k) reader.pin(key_of(k));
  at.tier->set_water_marks(0.5, 0.4);
  BOOST_TEST(!at.tier->evict_ahead(at.now));
  BOOST_TEST(hits(0, small_blocks) == small_blocks);
}

BOOST_AUTO_TEST_CASE(a_put_that_finds_no_memory_evicts_and_asks_again_later) {
  put(0, 16);
  at.memory_is_short = true;
  put(100, 200);
  BOOST_TEST(at.status().slabs < 4U);
  BOOST_TEST(at.status().counters.evicted > 0U);
  at.memory_is_short = false;
  at.now += tenths(100);
  put(200, 200 + small_blocks);
  BOOST_TEST(at.status().slabs == 4U);
}

BOOST_AUTO_TEST_CASE(what_a_cleared_instance_had_is_used_before_another_evicts_its_own) {
  put(0, small_blocks);
  const instance_number other = at.add(spec_of("two", 8192));
  client c(at, other);
  at.tier->clear_instance("one", ++at.now);
  for (std::uint64_t k = 0; k < 3 * 8; ++k) BOOST_REQUIRE((code_of(c.put(key_of(k))) == error_code::ok));
  BOOST_TEST(at.present(other) == 3U * 8);
  BOOST_TEST(at.status().counters.evicted == 0U);
}

BOOST_AUTO_TEST_CASE(a_put_that_waits_can_be_given_up) {
  node empty(options_of(small_capacity, small_slab));
  empty.memory_is_short = true;
  const auto number = empty.add(spec_of("one"));
  client c(empty, number);
  empty.now += tenths(20);
  batch work;
  work.session = c.number;
  auto entry = c.entry_of(operation::reserve, key_of(1), 1);
  entry.flags = memory::submission::flag_last;
  work.entries = {entry};
  BOOST_TEST((empty.tier->run(work, empty.now) == progress::waits_for_memory));
  empty.tier->give_up(work, empty.now);
  BOOST_TEST((empty.tier->run(work, empty.now) == progress::finished));
  BOOST_REQUIRE(work.completions.size() == 2U);
  BOOST_TEST((work.completions[0].kind == completion_kind::refused));
  BOOST_TEST((code_of(work.completions[1]) == error_code::no_space));
}

BOOST_AUTO_TEST_SUITE_END()

// ---------------------------------------------------------------------------------------------- quotas

BOOST_AUTO_TEST_SUITE(store_quotas)

namespace {

/// Two instances of one group, one of another.
struct groups {
  explicit groups(const std::map<std::string, std::uint64_t>& quotas) : at(with(quotas)) {}
  static store_options with(const std::map<std::string, std::uint64_t>& quotas) {
    auto options = options_of(8 * (small_slab + 4096), small_slab);
    for (const auto& [name, bytes] : quotas) options.groups.emplace(name, group_options{.quota = bytes});
    return options;
  }
  ~groups() { BOOST_TEST(at.broken_identity() == ""); }
  std::uint64_t used(const std::string& name) {
    for (const account_status& each : at.status().accounts) {
      if (each.name == name) return each.used;
    }
    return 0;
  }
  node at;
  client a{at, at.add(spec_of("a", 4096, 1, "team"))};
  client b{at, at.add(spec_of("b", 4096, 1, "team"))};
  client other{at, at.add(spec_of("other"))};
};

}  // namespace

BOOST_AUTO_TEST_CASE(a_quota_is_never_exceeded_and_is_shared_by_the_instances_of_a_group) {
  groups g({{"team", 20 * 4096}});
  for (std::uint64_t k = 0; k < 30; ++k) g.other.put(key_of(k));
  for (std::uint64_t k = 0; k < 100; ++k) {
    ++g.at.now;
    BOOST_REQUIRE((code_of((k % 3 == 0 ? g.a : g.b).put(key_of(k))) == error_code::ok));
    BOOST_REQUIRE(g.used("team") <= 20U * 4096);
  }
  BOOST_TEST(g.at.present(g.a.in) + g.at.present(g.b.in) == 20U);
  BOOST_TEST(g.at.present(g.other.in) == 30U);  // nobody else pays
  for (std::uint64_t k = 90; k < 100; ++k) BOOST_TEST(((k % 3 == 0 ? g.a : g.b).read(key_of(k)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_quota_smaller_than_a_block_stores_nothing) {
  groups g({{"team", 100}});
  BOOST_TEST((code_of(g.a.put(key_of(1))) == error_code::no_space));
  BOOST_TEST((g.a.reserve(key_of(1), 1).kind == completion_kind::refused));
  BOOST_TEST(g.used("team") == 0U);
}

BOOST_AUTO_TEST_CASE(blank_blocks_count_in_the_quota) {
  groups g({{"team", 8 * 4096}});
  while (g.a.take()) {
  }
  std::uint64_t taken = 0;
  while (g.a.obtain()) ++taken;
  BOOST_TEST(taken == 8U);
  BOOST_TEST((code_of(g.b.put(key_of(1))) == error_code::no_space));
}

BOOST_AUTO_TEST_CASE(a_quota_whose_blocks_are_pinned_gives_no_space) {
  groups g({{"team", 4 * 4096}});
  for (std::uint64_t k = 0; k < 4; ++k) {
    g.a.put(key_of(k));
    BOOST_REQUIRE(g.a.pin(key_of(k)).has_value());
  }
  BOOST_TEST((code_of(g.a.put(key_of(9))) == error_code::no_space));
  BOOST_TEST((code_of(g.b.put(key_of(9))) == error_code::no_space));
  BOOST_TEST((code_of(g.other.put(key_of(9))) == error_code::ok));
}

BOOST_AUTO_TEST_CASE(a_quota_finds_its_victims_in_every_pool_of_the_group) {
  groups g({{"team", 8 * 4096}});
  client c(g.at, g.at.add(spec_of("c", 4096, 1, "team")));
  for (std::uint64_t k = 0; k < 4; ++k) {  // the oldest, pinned
    g.a.put(key_of(k));
    BOOST_REQUIRE(g.a.pin(key_of(k)).has_value());
  }
  ++g.at.now;
  for (std::uint64_t k = 0; k < 4; ++k) g.b.put(key_of(k));  // younger, evictable
  ++g.at.now;
  BOOST_TEST((code_of(g.a.put(key_of(10))) == error_code::ok));
  BOOST_TEST((code_of(c.put(key_of(10))) == error_code::ok));
  BOOST_TEST(g.at.present(g.a.in) + g.at.present(g.b.in) + g.at.present(c.in) == 8U);
  for (std::uint64_t k = 0; k < 4; ++k) BOOST_TEST((g.a.read(key_of(k)) == look::right));
}

BOOST_AUTO_TEST_CASE(a_quota_changes_at_run_time) {
  groups g({});
  for (std::uint64_t k = 0; k < 40; ++k) g.a.put(key_of(k));
  g.at.tier->set_groups({{"team", {.quota = 10 * 4096}}}, g.at.now);
  g.at.tier->tick(g.at.now);
  BOOST_TEST(g.used("team") <= 10U * 4096);
  BOOST_TEST((g.a.read(key_of(39)) == look::right));
  g.at.tier->set_groups({{"team", {}}}, g.at.now);
  for (std::uint64_t k = 100; k < 140; ++k) g.a.put(key_of(k));
  BOOST_TEST(g.used("team") > 40U * 4096);
}

BOOST_AUTO_TEST_CASE(a_lowered_quota_counts_for_the_next_put) {
  groups g({});
  for (std::uint64_t k = 0; k < 40; ++k) g.a.put(key_of(k));
  g.at.tier->set_groups({{"team", {.quota = 10 * 4096}}}, g.at.now);
  BOOST_TEST((code_of(g.b.put(key_of(1))) == error_code::ok));
  BOOST_TEST(g.used("team") <= 10U * 4096);
}

BOOST_AUTO_TEST_SUITE_END()

// ---------------------------------------------------------------------------------------------- slabs

BOOST_AUTO_TEST_SUITE(store_slabs)

BOOST_AUTO_TEST_CASE(two_hundred_instances_of_64_kib_blocks_share_one_gib) {
  node at(options_of(1024 * mib));
  std::vector<std::unique_ptr<client>> clients;
  for (int i = 0; i < 200; ++i) {
    clients.push_back(std::make_unique<client>(at, at.add(spec_of("i" + std::to_string(i), 64 * kib))));
  }
  for (std::uint64_t k = 0; k < 20; ++k) {
    for (auto& each : clients) BOOST_REQUIRE((code_of(each->put(key_of(k))) == error_code::ok));
  }
  for (auto& each : clients) {
    for (std::uint64_t k = 0; k < 20; ++k) BOOST_REQUIRE((each->read(key_of(k)) == look::right));
  }
  BOOST_TEST(at.broken_identity() == "");
  BOOST_TEST(at.status().assigned <= 1024U * mib);
}

BOOST_AUTO_TEST_CASE(a_second_instance_takes_over_a_full_tier_and_what_is_in_use_goes_last) {
  node at(options_of(64 * mib, mib));
  client first(at, at.add(spec_of("first", 16 * kib)));
  const std::uint64_t all = 64 * mib / (mib + 4 * kib) * (mib / (16 * kib));
  for (std::uint64_t k = 0; k < all; ++k) BOOST_REQUIRE((code_of(first.put(key_of(k))) == error_code::ok));
  BOOST_TEST(at.present(first.in) == all);
  ++at.now;
  std::vector<full_key> hot;  // every tenth, all over the slabs
  for (std::uint64_t k = 0; k < all; k += 10) hot.push_back(key_of(k));
  const auto touch_hot = [&] {
    for (std::size_t i = 0; i < hot.size(); i += 8)
      first.touch(std::span(hot).subspan(i, std::min<std::size_t>(8, hot.size() - i)));
  };
  client second(at, at.add(spec_of("second", 32 * kib)));
  std::uint64_t k = 0;
  for (; at.present(second.in) * 32 * kib < 64 * mib * 8 / 10; ++k) {
    BOOST_REQUIRE(k < all);
    BOOST_REQUIRE((code_of(second.put(key_of(k))) == error_code::ok));
    if (k % 16 == 0) {
      ++at.now;
      touch_hot();
    }
  }
  std::uint64_t kept = 0;
  for (const full_key& key : hot) {
    const look seen = first.read(key);
    BOOST_REQUIRE((seen != look::wrong));
    kept += seen == look::right ? 1 : 0;
  }
  BOOST_TEST_MESSAGE("hot blocks kept: " << kept << " of " << hot.size() << ", present " << at.present(first.in)
                                         << ", moved " << at.status().counters.moved << ", slabs moved "
                                         << at.status().counters.slabs_moved);
  BOOST_TEST(kept >= hot.size() * 9 / 10);
  BOOST_TEST(at.status().counters.slabs_moved > 0U);
  BOOST_TEST(at.broken_identity() == "");
  for (std::uint64_t i = 0; i < k; ++i) BOOST_REQUIRE((second.read(key_of(i)) != look::wrong));
}

namespace {

/// One instance fills all four slabs, another one comes.
struct full_tier {
  node at{options_of(small_capacity, small_slab)};
  client a{at, at.add(spec_of("a")), 128};
  full_tier() {
    for (std::uint64_t k = 0; k < small_blocks; ++k) a.put(key_of(k));
    ++at.now;
  }
  ~full_tier() { BOOST_TEST(at.broken_identity() == ""); }
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_slab_with_pins_in_it_does_not_change_hands_and_loses_nothing, full_tier) {
  for (std::uint64_t k = 0; k < small_blocks; k += 4) BOOST_REQUIRE(a.pin(key_of(k)).has_value());  // some in each slab
  client b(at, at.add(spec_of("b")));
  BOOST_TEST((code_of(b.put(key_of(1))) == error_code::no_space));
  for (std::uint64_t k = 0; k < small_blocks; ++k) BOOST_TEST((a.read(key_of(k)) == look::right));
  BOOST_TEST(at.status().counters.evicted == 0U);
  for (std::uint32_t slot = 0; slot < small_blocks / 4; ++slot) a.unpin(slot);
  BOOST_TEST((code_of(b.put(key_of(1))) == error_code::ok));
}

BOOST_FIXTURE_TEST_CASE(a_slab_that_is_being_written_does_not_change_hands, full_tier) {
  for (std::uint32_t slab = 1; slab <= 4; ++slab) {  // one taken block in each
    const full_key victim = key_of((slab - 1) * 16);
    a.remove(victim);
    BOOST_REQUIRE(a.obtain().has_value());
  }
  client b(at, at.add(spec_of("b")));
  BOOST_TEST((code_of(b.put(key_of(1))) == error_code::no_space));
  BOOST_TEST(at.present(a.in) == small_blocks - 4);
}

BOOST_FIXTURE_TEST_CASE(blocks_that_move_keep_their_contents, full_tier) {
  for (std::uint64_t k = 0; k < small_blocks; k += 2) a.remove(key_of(k));  // room to move to
  ++at.now;
  client b(at, at.add(spec_of("b")));
  for (std::uint64_t k = 0; k < 16; ++k) BOOST_TEST((code_of(b.put(key_of(k))) == error_code::ok));
  BOOST_TEST(at.status().counters.moved > 0U);
  BOOST_TEST(at.status().counters.evicted == 0U);
  for (std::uint64_t k = 1; k < small_blocks; k += 2) BOOST_TEST((a.read(key_of(k)) == look::right));
  for (std::uint64_t k = 0; k < 16; ++k) BOOST_TEST((b.read(key_of(k)) == look::right));
}

BOOST_FIXTURE_TEST_CASE(a_damaged_block_is_dropped_when_it_moves_under_a_checksum, full_tier) {
  auto options = options_of(small_capacity, small_slab);
  options.checksum_at_commit = true;
  node checked(options);
  client c(checked, checked.add(spec_of("c")));
  for (std::uint64_t k = 0; k < small_blocks; ++k) c.put(key_of(k));
  for (std::uint64_t k = 0; k < small_blocks; k += 2) c.remove(key_of(k));
  for (std::uint64_t k = 1; k < small_blocks; k += 2) {
    const auto value = checked.index(c.in).find(reduce_key(key_of(k).view(), 0));
    checked.bytes(c.in, memory::index_value::ref(value))[5] ^= std::byte{1};
  }
  client d(checked, checked.add(spec_of("d")));
  d.put(key_of(1));
  BOOST_TEST(checked.status().counters.checksum_errors == 8U);
  BOOST_TEST(checked.present(c.in) == small_blocks / 2 - 8);
  BOOST_TEST(checked.broken_identity() == "");
}

BOOST_FIXTURE_TEST_CASE(numbers_of_slabs_are_never_used_again_not_even_by_the_next_worker, full_tier) {
  std::uint32_t highest = 0;
  const auto note = [&] {
    for (const auto& [place, kept] : at.slabs) {
      if (place.first == a.in) highest = std::max(highest, place.second);
    }
  };
  note();
  client b(at, at.add(spec_of("b")));
  for (std::uint64_t k = 0; k < small_blocks; ++k) b.put(key_of(k));  // all of a's slabs go
  at.restart();
  ++at.now;
  std::vector<std::uint32_t> fresh;
  a.put(key_of(500));
  for (const auto& [place, kept] : at.slabs) {
    if (place.first == a.in) fresh.push_back(place.second);
  }
  BOOST_REQUIRE(!fresh.empty());
  for (const std::uint32_t index : fresh) BOOST_TEST(index > highest);
}

BOOST_FIXTURE_TEST_CASE(versions_never_decrease_when_their_places_are_used_again, full_tier) {
  const auto& versions = at.versions(a.in);
  std::vector<std::uint64_t> before;
  for (std::uint32_t i = 0; i < small_blocks; ++i) before.push_back(versions.version(i));
  client b(at, at.add(spec_of("b")));
  for (int round = 0; round < 4; ++round) {
    ++at.now;
    for (std::uint64_t k = 0; k < 2 * small_blocks; ++k) b.put(key_of(1000 * static_cast<std::uint64_t>(round) + k));
    ++at.now;
    for (std::uint64_t k = 0; k < 2 * small_blocks; ++k) a.put(key_of(1000 * static_cast<std::uint64_t>(round) + k));
    for (std::uint32_t i = 0; i < small_blocks; ++i) {
      BOOST_REQUIRE(versions.version(i) >= before[i]);
      before[i] = versions.version(i);
    }
    if (round == 1) at.restart();
  }
  BOOST_TEST(before[0] > 2U);
}

BOOST_FIXTURE_TEST_CASE(a_tier_that_cannot_have_memory_is_not_emptied_by_those_who_ask, full_tier) {
  client b(at, at.add(spec_of("b")));
  at.memory_is_short = true;
  for (std::uint64_t k = 0; k < 3; ++k) b.put(key_of(k));
  BOOST_TEST(at.status().slabs >= 1U);
  at.memory_is_short = false;
  at.now += tenths(100);
  BOOST_TEST((code_of(b.put(key_of(1))) == error_code::ok));
}

BOOST_AUTO_TEST_CASE(slabs_are_sized_by_the_capacity) {
  BOOST_TEST(blocks_per_slab(1024 * mib, 64 * kib, 0) == 64U);         // 4 MiB
  BOOST_TEST(blocks_per_slab(1024 * 1024 * mib, 2 * mib, 0) == 512U);  // 1 GiB at most
  BOOST_TEST(blocks_per_slab(std::uint64_t{1} << 50, 4096, 0) == std::min(262'144U, block_ref::max_blocks_per_slab));
  BOOST_TEST(blocks_per_slab(mib, 64 * kib, 0) == 15U);  // with its trailer it fits into the capacity
  BOOST_TEST(blocks_per_slab(64 * mib, 4096, 16 * 4096) == 16U);
  BOOST_TEST(blocks_per_slab(64 * mib, 64 * kib, 4096) == 1U);
}

BOOST_AUTO_TEST_CASE(the_description_of_a_slab_survives_the_registry) {
  const slab_description what{3, 1, 77, 16, 8192, 1000, 2000};
  byte_writer out;
  encode(out, what, what.segment_bytes());
  const auto back = decode_slab(out.bytes());
  BOOST_REQUIRE(back.has_value());
  BOOST_TEST(back->slab.index == 77U);
  BOOST_TEST(back->slab.first_version == 2000U);
  BOOST_TEST(back->segment_bytes == 16U * 8192 + 4096);
  BOOST_TEST(!decode_slab(out.bytes().first(20)).has_value());
  const slab_description nonsense{};
  byte_writer zero;
  encode(zero, nonsense, 0);
  BOOST_TEST(!decode_slab(zero.bytes()).has_value());
}

BOOST_AUTO_TEST_CASE(a_segment_that_is_no_slab_is_refused) {
  slab_description what;
  what.count = 4;
  what.stride = 4096;
  auto made = make_slab_memory(what, true, -1);  // without huge pages it falls back
  BOOST_REQUIRE(made.has_value());
  BOOST_TEST(open_slab_memory(std::move(*made->fd().duplicate()), made->size()).has_value());
  std::memset(made->data() + made->size() - memory::page_bytes, 0, 8);
  BOOST_TEST(!open_slab_memory(std::move(*made->fd().duplicate()), made->size()).has_value());
  BOOST_TEST(!open_slab_memory(std::move(*made->fd().duplicate()), made->size() + 4096).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_space_test
