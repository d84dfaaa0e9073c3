// Instances that nobody uses are given up.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <set>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_life_test {

using namespace testing;

namespace {

constexpr std::uint64_t slab_bytes = 16 * 4096;
constexpr tenths idle = tenths(1000);
constexpr tenths empty = tenths(10);

store_options with(std::uint32_t most = 0, std::uint64_t slabs = 16) {
  auto options = options_of(slabs * (slab_bytes + 4096), slab_bytes);
  options.life = {.idle = idle, .empty = empty, .instances = most};
  return options;
}

struct world {
  explicit world(store_options options = with()) : at(std::move(options)) {}
  ~world() { BOOST_TEST(at.broken_identity() == ""); }

  /// `after` tenths of a second later.
  void tick(tenths after = tenths(0)) {
    at.now += after;
    at.tier->tick(at.now);
    at.pump();
  }
  [[nodiscard]] bool has(const std::string& id) const {
    const auto all = at.status().instances;
    return std::ranges::any_of(all, [&](const instance_status& each) { return each.id == id; });
  }
  /// An instance of `blocks` blocks and no session.
  instance_number left_behind(const std::string& id, std::uint64_t blocks) {
    const instance_number number = at.add(spec_of(id));
    client engine(at, number);
    for (std::uint64_t n = 0; n < blocks; ++n) BOOST_REQUIRE(engine.put(key_of(n)).value == 1U);
    at.bury(engine.number);
    return number;
  }

  node at;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(store_life)

BOOST_AUTO_TEST_CASE(an_instance_without_a_block_goes_soon_after_its_last_session) {
  world test;
  client engine(test.at, test.at.add(spec_of("a")));
  test.tick(10 * idle);
  BOOST_TEST(test.has("a"));
  test.at.bury(engine.number);
  test.tick(empty - tenths(1));
  BOOST_TEST(test.has("a"));
  test.tick(tenths(1));
  BOOST_TEST(!test.has("a"));
  const store_status all = test.at.status();
  BOOST_TEST(all.counters.instances_given_up == 1U);
  BOOST_TEST(all.assigned == 0U);
  BOOST_TEST(all.accounts.size() == 0U);
  BOOST_TEST(test.at.slabs.empty());
  BOOST_TEST(test.at.instances.empty());
}

BOOST_AUTO_TEST_CASE(an_idle_instance_is_emptied_and_given_up_after_its_time) {
  world test;
  test.left_behind("a", 40);
  test.tick(idle - tenths(1));
  BOOST_TEST(test.at.status().present == 40U);
  test.tick(tenths(1));
  BOOST_TEST(!test.has("a"));
  BOOST_TEST(test.at.status().counters.evicted == 40U);
  BOOST_TEST(test.at.status().used == 0U);
  BOOST_TEST(test.at.status().assigned == 0U);
}

BOOST_AUTO_TEST_CASE(its_number_is_not_used_again_even_after_a_restart) {
  world test;
  const instance_number number = test.left_behind("a", 0);
  test.tick(empty);
  BOOST_TEST(!test.has("a"));
  test.at.restart();
  BOOST_TEST(test.at.tier->next_instance() == number + 1);
}

BOOST_AUTO_TEST_CASE(whoever_comes_back_in_time_finds_its_blocks) {
  world test;
  const instance_number number = test.left_behind("a", 20);
  test.tick(idle - tenths(1));
  client engine(test.at, number);
  test.tick(idle);
  for (std::uint64_t n = 0; n < 20; ++n) BOOST_TEST((engine.read(key_of(n)) == look::right));
  test.at.bury(engine.number);
  test.tick(idle - tenths(1));
  BOOST_TEST(test.at.status().present == 20U);  // the time began anew
}

BOOST_AUTO_TEST_CASE(an_instance_that_somebody_is_about_to_attach_to_stays) {
  world test;
  const instance_number number = test.left_behind("a", 0);
  test.at.now += empty;
  BOOST_REQUIRE(test.at.tier->find_instance(spec_of("a")).value().has_value());
  test.at.tier->claim_instance(number, test.at.now);
  test.tick(test.at.options.life.claim - tenths(1));
  BOOST_TEST(test.has("a"));
  const client engine(test.at, number);
  test.tick(10 * idle);
  BOOST_TEST(test.has("a"));
}

BOOST_AUTO_TEST_CASE(a_session_of_an_instance_that_went_is_refused) {
  world test;
  const instance_number number = test.left_behind("a", 0);
  test.tick(empty);
  auto memory = memory::segment::create("test-session", memory::session_memory::segment_bytes(8));
  BOOST_REQUIRE(memory);
  const auto added = test.at.tier->add_session(77, number, memory::session_memory::create(*memory, 77, 8));
  BOOST_REQUIRE(!added);
  BOOST_TEST((added.error().code() == error_code::closed));
}

BOOST_AUTO_TEST_CASE(kept_blocks_go_with_their_instance) {
  auto options = with();
  options.groups["a"].keep = {key_of(1)};
  world test(options);
  const instance_number number = test.at.add(spec_of("a"));
  client engine(test.at, number);
  for (std::uint64_t n = 0; n < 40; ++n) engine.put(key_of(n));
  const std::array kept{key_of(2), key_of(3), key_of(39)};
  BOOST_TEST(engine.keep(kept).value == 3U);
  test.at.bury(engine.number);
  test.tick(idle);
  for (int i = 0; i < 10 && test.has("a"); ++i) test.tick();
  BOOST_TEST(!test.has("a"));
  BOOST_TEST(test.at.status().accounts.size() == 1U);  // the configuration names it
}

BOOST_AUTO_TEST_CASE(the_idle_time_goes_on_over_a_restart) {
  world test;
  test.left_behind("a", 5);
  test.tick(idle / 2);
  test.at.restart();
  BOOST_TEST(*test.at.status().instances.at(0).idle == idle / 2);
  BOOST_TEST(*test.at.status().instances.at(0).given_up == idle / 2);
  test.tick(idle / 2);
  BOOST_TEST(!test.has("a"));
}

BOOST_AUTO_TEST_CASE(of_sessions_that_died_with_the_worker_the_idle_time_begins_at_the_restart) {
  world test;
  client engine(test.at, test.at.add(spec_of("a")));
  engine.put(key_of(1));
  test.at.now += 10 * idle;
  test.at.sessions.clear();  // the keeper knows of none
  test.at.restart();
  BOOST_TEST(test.at.status().instances.at(0).idle->count() == 0U);
  test.tick(idle - tenths(1));
  BOOST_TEST(test.at.status().present == 1U);
}

BOOST_AUTO_TEST_CASE(without_a_limit_only_empty_instances_go) {
  auto options = with();
  options.life.idle = tenths(0);
  world test(options);
  test.left_behind("a", 1);
  test.left_behind("b", 0);
  test.tick(100 * idle);
  BOOST_TEST(test.has("a"));
  BOOST_TEST(!test.has("b"));
  for (const auto& each : test.at.status().instances) BOOST_TEST(!each.given_up.has_value());
}

BOOST_AUTO_TEST_CASE(when_there_are_nearly_too_many_the_longest_idle_one_makes_way) {
  world test(with(8));
  for (int i = 0; i < 6; ++i) {
    test.left_behind("i" + std::to_string(i), 1);
    test.tick(tenths(1));
  }
  const client busy(test.at, 1);  // the oldest is in use
  test.tick(tenths(2));
  BOOST_TEST(test.at.status().instances.size() == 6U);
  test.left_behind("new", 1);
  test.tick(tenths(2));
  BOOST_TEST(test.has("i0"));
  BOOST_TEST(!test.has("i1"));
  test.tick(tenths(2));
  BOOST_TEST(test.at.status().instances.size() == 6U);  // and no more than must be
}

BOOST_AUTO_TEST_CASE(empty_instances_make_way_for_a_new_one_at_once) {
  world test(with(8));
  test.left_behind("full", 1);
  for (int i = 0; i < 100; ++i) {
    BOOST_REQUIRE(test.at.tier->make_room(0, test.at.now));
    test.left_behind("i" + std::to_string(i), 0);
    BOOST_TEST(test.at.status().instances.size() <= 8U);
  }
  BOOST_TEST(test.has("full"));
}

BOOST_AUTO_TEST_CASE(no_more_are_made_than_there_may_be) {
  world test(with(4));
  std::vector<client> engines;
  for (int i = 0; i < 4; ++i) {
    BOOST_REQUIRE(test.at.tier->make_room(0, test.at.now));
    engines.emplace_back(test.at, test.at.add(spec_of("i" + std::to_string(i))));
  }
  const auto refused = test.at.tier->make_room(0, test.at.now);
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code() == error_code::limit_exceeded));
  BOOST_TEST(refused.error().message().find("limits.instances") != std::string::npos);
  test.at.bury(engines[2].number);
  BOOST_TEST(test.at.tier->make_room(0, test.at.now).has_value());
  test.at.pump();
  BOOST_TEST(!test.has("i2"));
}

BOOST_AUTO_TEST_CASE(two_users_cannot_make_all_instances_that_there_may_be) {
  auto options = with(16, 64);
  options.life.per_owner = 12;
  options.life.trusted = {7};
  world test(options);
  std::vector<client> engines;
  const auto make = [&](std::uint32_t owner, std::size_t most) {
    test.at.owner = owner;
    std::size_t made = 0;
    auto room = test.at.tier->make_room(owner, test.at.now);
    for (; room && made < most; room = test.at.tier->make_room(owner, test.at.now)) {
      engines.emplace_back(test.at, test.at.add(spec_of("i" + std::to_string(engines.size()))));
      ++made;
    }
    return std::pair(made, room ? std::string() : room.error().message());
  };
  const auto [first, why] = make(1000, 100);
  BOOST_TEST(first == 8U);
  BOOST_TEST(
      why ==
      "uid 1000 has 8 of the 16 instances that there may be, and must leave as many to others; raise limits.instances");
  BOOST_TEST(make(1001, 100).first == 4U);
  BOOST_TEST(make(1002, 100).first == 2U);
  BOOST_TEST(make(1000, 100).first == 0U);
  const auto [rest, full] = make(7, 100);  // as many as there are
  BOOST_TEST(rest == 2U);
  BOOST_TEST(full.find("limits.instances allows no more") != std::string::npos);
  test.at.bury(engines[0].number);  // an idle one makes way, for whoever has few
  BOOST_TEST(make(1000, 100).first == 0U);
  BOOST_TEST(make(1003, 100).first == 1U);
}

BOOST_AUTO_TEST_CASE(of_a_user_who_has_nearly_too_many_an_idle_one_makes_way_and_no_other_users) {
  auto options = with();
  options.life.per_owner = 3;
  world test(options);
  test.at.owner = 7;
  test.left_behind("other", 1);
  test.at.owner = 8;
  for (int i = 0; i < 3; ++i) {
    BOOST_REQUIRE(test.at.tier->make_room(8, test.at.now));
    test.left_behind("i" + std::to_string(i), 1);
    ++test.at.now;
  }
  BOOST_TEST(test.at.tier->make_room(8, test.at.now).has_value());
  test.at.pump();
  BOOST_TEST(!test.has("i0"));
  BOOST_TEST(test.has("i1"));
  BOOST_TEST(test.has("other"));
  test.tick(tenths(10));
  BOOST_TEST(test.has("i1"));  // and no more than must be
}

BOOST_AUTO_TEST_CASE(a_pin_that_outlives_everything_keeps_nothing_of_another_instance) {
  world test;
  client reader(test.at, test.at.add(spec_of("b")));
  reader.put(key_of(1));
  const auto slot = reader.pin(key_of(1));
  BOOST_REQUIRE(slot);
  test.left_behind("a", 30);
  test.tick(idle);
  BOOST_TEST(!test.has("a"));
  BOOST_TEST(holds(reader.pinned_bytes(*slot), 4096, key_of(1)));
}

BOOST_AUTO_TEST_CASE(with_a_tier_below_what_has_no_copy_is_written_down_first) {
  auto options = with();
  options.high_water = options.low_water = 1.0;
  options.edges.resize(1);
  options.edges[0].write_window = 8 * 4096;
  world test(options);
  test.left_behind("a", 20);
  test.at.now += idle;
  std::set<std::uint64_t> written;
  for (int i = 0; i < 20 && test.has("a"); ++i) {
    test.tick();
    std::vector<transfer_outcome> outcomes;
    for (const transfer& each : test.at.tier->take_demotions()) {
      BOOST_TEST(holds(each.memory.data(), 4096, each.full));
      written.insert(each.key.lo);
      outcomes.push_back({each.token, transfer_result::done});
    }
    BOOST_TEST(outcomes.size() <= 8U);
    test.at.tier->transferred(outcomes, test.at.now);
  }
  BOOST_TEST(!test.has("a"));
  BOOST_TEST(written.size() == 20U);
  BOOST_TEST(test.at.status().counters.demotions_dropped == 0U);
  BOOST_TEST(test.at.tier->take_given_up().size() == 1U);
}

BOOST_AUTO_TEST_CASE(a_block_on_its_way_keeps_its_instance_until_the_transfer_ends) {
  auto options = with();
  options.high_water = options.low_water = 1.0;
  options.edges = {{.ingest = ingest::all, .write_window = 64 * 4096}};
  world test(options);
  test.left_behind("a", 4);
  const auto under_way = test.at.tier->take_demotions();
  BOOST_REQUIRE(under_way.size() == 4U);
  test.tick(idle);
  test.tick(idle);
  BOOST_TEST(test.has("a"));
  std::vector<transfer_outcome> outcomes;
  for (const transfer& each : under_way) outcomes.push_back({each.token, transfer_result::done});
  test.at.tier->transferred(outcomes, test.at.now);
  for (int i = 0; i < 5 && test.has("a"); ++i) test.tick();
  BOOST_TEST(!test.has("a"));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_life_test
