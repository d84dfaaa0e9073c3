// What one tenant can take from the others: accounts, kept and blank blocks, pins.
#include <boost/test/unit_test.hpp>

#include "tests/unit/tiers/blocks/node_fixture.hpp"

namespace cenote::blocks::store_tenants_test {

using namespace testing;
using memory::completion_kind;
using memory::operation;

namespace {

constexpr std::uint64_t block = 4096;
constexpr std::uint64_t slab_bytes = 64 * block;

error_code code_of(const memory::completion& answer) {
  return static_cast<error_code>(answer.code);
}

store_options small_tier(std::uint64_t slabs = 16) {
  return options_of(slabs * (slab_bytes + 4096), slab_bytes);
}

account_status account_of(const node& node, const std::string& name) {
  for (const account_status& each : node.status().accounts) {
    if (each.name == name) return each;
  }
  return {};
}

account_status user_of(const node& node, std::uint32_t uid) {
  for (const account_status& each : node.status().users) {
    if (each.uid == uid) return each;
  }
  return {};
}

std::vector<full_key> keys_from(std::uint64_t first, std::uint64_t count) {
  std::vector<full_key> keys;
  for (std::uint64_t n = 0; n < count; ++n) keys.push_back(key_of(first + n));
  return keys;
}

void put_all(client& client, const std::vector<full_key>& keys) {
  for (const full_key& key : keys) BOOST_REQUIRE((code_of(client.put(key)) == error_code::ok));
}

/// Reserves one key after the other until one is refused; how many went well.
std::vector<blank> reserve_all(client& client, std::uint64_t first, std::uint64_t most, std::uint64_t parts = 1) {
  std::vector<blank> got;
  for (std::uint64_t n = 0; n < most; ++n) {
    const auto answer = client.reserve(key_of(first + n), parts);
    if (answer.kind != completion_kind::reserved) {
      BOOST_TEST((answer.kind == completion_kind::refused && code_of(answer) == error_code::no_space));
      break;
    }
    got.push_back({memory::block_ref::from_bits(answer.block), answer.grant_version});
  }
  return got;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(store_tenants)

// ---------------------------------------------------------------------------------------------- accounts

BOOST_AUTO_TEST_CASE(groups_that_the_configuration_does_not_name_share_one_keep_quota) {
  node at(small_tier());
  const std::uint64_t quota = at.options.capacity / 10;
  std::uint64_t kept = 0;
  for (int n = 0; n < 6; ++n) {
    client each(at, at.add(spec_of("i" + std::to_string(n), block, 1, "invented" + std::to_string(n))));
    const auto keys = keys_from(1000 * (n + 1), 60);
    put_all(each, keys);
    kept += each.keep(keys).value;
  }
  BOOST_TEST(kept * block <= quota);
  BOOST_TEST(account_of(at, "default").kept == kept * block);
  BOOST_TEST(at.status().accounts.size() == 1U);
  BOOST_TEST(at.status().instances.front().group == "invented0");
  BOOST_TEST(at.status().instances.front().account == "default");
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(an_instance_without_a_group_has_an_account_only_if_the_configuration_names_it) {
  auto options = small_tier();
  options.groups["named"] = {};
  node at(options);
  at.add(spec_of("named"));
  at.add(spec_of("other"));
  BOOST_TEST(at.status().instances[0].account == "named");
  BOOST_TEST(at.status().instances[1].account == "default");
  BOOST_TEST(at.status().instances[1].group == "other");
}

BOOST_AUTO_TEST_CASE(blocks_for_later_puts_leave_a_small_quota_to_what_is_stored) {
  auto options = small_tier();
  options.groups["small"] = {.quota = 64 * block};
  node at(options);
  const instance_number in = at.add(spec_of("i", block, 1, "small"));
  client idle(at, in);
  client busy(at, in);
  auto commit = idle.commit_of(*idle.obtain(), key_of(1));
  commit.want = 256;
  commit.argument = memory::submission::spare_grants;
  BOOST_TEST(idle.ask({commit}).value == 1U);
  BOOST_TEST(at.status().granted <= 8U);
  const auto keys = keys_from(100, 50);
  put_all(busy, keys);
  for (const full_key& key : keys) BOOST_TEST((busy.read(key) == look::right));
  BOOST_TEST(at.status().counters.evicted == 0U);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(open_groups_have_accounts_of_their_own) {
  auto options = small_tier();
  options.limits.open_groups = true;
  options.limits.group_quota = 20 * block;
  node at(options);
  client a(at, at.add(spec_of("a", block, 1, "x")));
  client b(at, at.add(spec_of("b", block, 1, "y")));
  put_all(a, keys_from(1, 30));
  put_all(b, keys_from(1, 30));
  BOOST_TEST(account_of(at, "x").used == 20 * block);
  BOOST_TEST(account_of(at, "y").used == 20 * block);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(the_default_quota_bounds_all_that_nobody_configured) {
  auto options = small_tier();
  options.limits.group_quota = 40 * block;
  options.groups["paying"] = {};
  node at(options);
  for (int n = 0; n < 3; ++n) {
    client each(at, at.add(spec_of("i" + std::to_string(n), block, 1, "invented" + std::to_string(n))));
    put_all(each, keys_from(1, 60));
  }
  BOOST_TEST(account_of(at, "default").used <= 40 * block);
  client paying(at, at.add(spec_of("p", block, 1, "paying")));
  put_all(paying, keys_from(1, 60));
  BOOST_TEST(account_of(at, "paying").used >= 60 * block);
}

BOOST_AUTO_TEST_CASE(kept_blocks_of_all_groups_together_have_a_bound) {
  auto options = small_tier();
  options.limits.keep_share = 0.25;
  for (const char* name : {"g0", "g1", "g2", "g3"}) options.groups[name] = {.keep_quota = options.capacity / 8};
  node at(options);
  std::uint64_t kept = 0;
  for (int n = 0; n < 4; ++n) {
    client each(at, at.add(spec_of("i" + std::to_string(n), block, 1, "g" + std::to_string(n))));
    const auto keys = keys_from(1000 * (n + 1), 128);
    put_all(each, keys);
    const auto answer = each.keep(keys);
    kept += answer.value;
    if (n == 3) BOOST_TEST((code_of(answer) == error_code::limit_exceeded));
  }
  BOOST_TEST(kept * block <= options.capacity / 4);
  BOOST_TEST(kept * block > options.capacity / 5);
  at.restart();  // what is kept counts as before
  std::uint64_t after = 0;
  for (const account_status& each : at.status().accounts) after += each.kept;
  BOOST_TEST(after == kept * block);
  client again(at, 1);
  put_all(again, keys_from(50'000, 20));
  BOOST_TEST((code_of(again.keep(keys_from(50'000, 20))) == error_code::limit_exceeded));
}

BOOST_AUTO_TEST_CASE(a_group_that_is_named_later_takes_what_it_has_along) {
  node at(small_tier());
  client a(at, at.add(spec_of("a", block, 2, "team")));
  client b(at, at.add(spec_of("b", block, 1, "rest")));
  put_all(a, keys_from(1, 10));
  put_all(b, keys_from(1, 5));
  BOOST_TEST(a.keep(keys_from(1, 3)).value == 3U);
  BOOST_TEST(reserve_all(a, 500, 2).size() == 2U);
  at.options.groups["team"] = {.quota = 100 * block};
  at.tier->set_groups(at.options.groups, at.now);
  BOOST_TEST(account_of(at, "team").kept == 3 * block);
  BOOST_TEST(account_of(at, "team").reserved == 2 * block);
  BOOST_TEST(account_of(at, "default").kept == 0U);
  BOOST_TEST(account_of(at, "default").reserved == 0U);
  BOOST_TEST(at.broken_identity() == "");
  at.options.groups.clear();
  at.tier->set_groups({}, at.now);
  BOOST_TEST(at.status().accounts.size() == 1U);
  BOOST_TEST(account_of(at, "default").kept == 3 * block);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(one_user_keeps_no_more_than_a_share_of_what_the_shared_account_may) {
  node at(small_tier());
  const std::uint64_t quota = at.options.capacity / 10 / block;
  const auto keep_all = [&](const std::string& name, std::uint32_t owner) {
    at.owner = owner;
    client each(at, at.add(spec_of(name)));
    put_all(each, keys_from(1, 60));
    return each.keep(keys_from(1, 60)).value;
  };
  const std::uint64_t greedy = keep_all("a", 1000) + keep_all("b", 1000);
  BOOST_TEST(greedy == quota / 2);
  BOOST_TEST(keep_all("c", 1001) == quota / 2);
  BOOST_TEST(user_of(at, 1000).kept == greedy * block);
  BOOST_TEST(account_of(at, "default").kept == quota / 2 * 2 * block);
  BOOST_TEST(at.status().accounts.size() == 1U);
  BOOST_TEST(at.broken_identity() == "");
  at.restart();
  BOOST_TEST(user_of(at, 1000).kept == greedy * block);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(one_user_s_quota_costs_no_other_user_a_block) {
  auto options = small_tier();
  options.limits.group_quota = 100 * block;
  options.limits.user_quota = 60 * block;
  node at(options);
  at.owner = 1001;
  client other(at, at.add(spec_of("other")));
  put_all(other, keys_from(1, 40));
  at.owner = 1000;
  for (const char* name : {"a", "b"}) {
    client greedy(at, at.add(spec_of(name)));
    put_all(greedy, keys_from(1, 60));
  }
  BOOST_TEST(user_of(at, 1000).used <= 60 * block);
  BOOST_TEST(user_of(at, 1000).used >= 50 * block);
  for (const full_key& key : keys_from(1, 40)) BOOST_TEST((other.read(key) == look::right));
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(limits_of_users_do_not_bind_groups_that_the_configuration_names) {
  auto options = small_tier();
  options.limits.user_quota = 10 * block;
  options.groups["named"] = {.keep_quota = 30 * block};
  node at(options);
  client a(at, at.add(spec_of("named")));
  put_all(a, keys_from(1, 40));
  BOOST_TEST(a.keep(keys_from(1, 40)).value == 30U);
  BOOST_TEST(account_of(at, "named").used >= 40 * block);
  BOOST_TEST(at.status().users.empty());
}

BOOST_AUTO_TEST_CASE(limits_of_users_change_at_a_reload_and_what_is_too_much_goes) {
  node at(small_tier());
  at.owner = 1000;
  client a(at, at.add(spec_of("a", block, 1, "team")));
  at.owner = 1001;
  client b(at, at.add(spec_of("b")));
  for (client* each : {&a, &b}) {
    put_all(*each, keys_from(1, 40));
    BOOST_TEST(each->keep(keys_from(1, 20)).value == 20U);
  }
  at.options.limits.user_keep_share = 0.1;
  at.options.limits.user_quota = 30 * block;
  at.tier->set_limits(at.options.limits, at.now);
  at.tier->tick(++at.now);
  const std::uint64_t may_keep = at.options.capacity / 100 / block;
  for (const std::uint32_t uid : {1000U, 1001U}) {
    BOOST_TEST(user_of(at, uid).kept == may_keep * block);
    BOOST_TEST(user_of(at, uid).used <= 30 * block);
  }
  BOOST_TEST(at.broken_identity() == "");

  at.options.groups["team"] = {};  // now it has an account of its own
  at.tier->set_groups(at.options.groups, at.now);
  BOOST_TEST(at.status().users.size() == 1U);
  BOOST_TEST(account_of(at, "default").kept == may_keep * block);
  BOOST_TEST(account_of(at, "team").kept == may_keep * block);
  BOOST_TEST(at.broken_identity() == "");
  at.tier->set_groups({}, at.now);
  BOOST_TEST(user_of(at, 1000).kept == may_keep * block);
  BOOST_TEST(at.status().accounts.size() == 1U);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(a_user_is_forgotten_with_his_last_instance) {
  auto options = small_tier();
  options.life = {.idle = tenths(10), .empty = tenths(10), .claim = tenths(1)};
  node at(options);
  at.owner = 1000;
  at.add(spec_of("stays"));
  at.owner = 1001;
  at.add(spec_of("goes"));
  client holds(at, 1);
  BOOST_TEST(at.status().users.size() == 2U);
  at.tier->tick(at.now += tenths(20));
  BOOST_TEST(at.status().instances.size() == 1U);
  BOOST_TEST(at.status().users.size() == 1U);
  BOOST_TEST(account_of(at, "default").name == "default");
  at.bury(holds.number);
  at.tier->tick(at.now += tenths(20));
  BOOST_TEST(at.status().accounts.empty());
  BOOST_TEST(at.status().users.empty());
}

BOOST_AUTO_TEST_CASE(what_is_kept_beyond_a_lowered_limit_is_let_go) {
  auto options = small_tier();
  options.groups["a"] = {.keep_quota = 20 * block, .keep = {key_of(1)}};
  node at(options);
  client a(at, at.add(spec_of("a")));
  put_all(a, keys_from(1, 20));
  BOOST_TEST(a.keep(keys_from(1, 20)).value == 20U);
  at.options.groups["a"].keep_quota = 5 * block;
  at.tier->set_groups(at.options.groups, at.now);
  at.tier->tick(++at.now);
  BOOST_TEST(account_of(at, "a").kept == 5 * block);
  at.options.limits.keep_share = 0.0;
  at.tier->set_limits(at.options.limits, at.now);
  at.tier->tick(++at.now);
  BOOST_TEST(account_of(at, "a").kept == block);  // what the configuration names stays to the last
  BOOST_TEST((a.read(key_of(20)) == look::right));
  BOOST_TEST(at.broken_identity() == "");
}

// ---------------------------------------------------------------------------------------------- blank blocks

BOOST_AUTO_TEST_CASE(one_session_reserves_no_more_than_its_share_and_the_others_keep_their_blocks) {
  node at(small_tier());
  client victim(at, at.add(spec_of("victim")));
  at.uid = 2000;
  client greedy(at, at.add(spec_of("greedy")));
  put_all(victim, keys_from(1, 300));
  const auto got = reserve_all(greedy, 1, 1000);
  BOOST_TEST(got.size() == at.options.capacity / 4 / block);
  std::size_t there = 0;
  for (const full_key& key : keys_from(1, 300)) there += victim.read(key) == look::right ? 1U : 0U;
  BOOST_TEST(there == 300U);
  BOOST_TEST(at.status().counters.reserve_refused == 1U);
  // What is written makes room for more.
  BOOST_TEST(greedy.finish(got[0], 1).value == 1U);
  BOOST_TEST(reserve_all(greedy, 5000, 10).size() == 1U);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(sessions_of_one_user_share_what_one_user_may_reserve) {
  node at(small_tier());
  const auto in = at.add(spec_of("i"));
  client first(at, in);
  client second(at, in);
  at.uid = 2000;
  client other(at, in);
  const std::uint64_t blocks = at.options.capacity / block;
  const std::uint64_t share = blocks / 4;
  BOOST_TEST(reserve_all(first, 1, 1000).size() == share);
  BOOST_TEST(reserve_all(second, 10'000, 1000).size() == 0U);
  BOOST_TEST(reserve_all(other, 20'000, 1000).size() == share);
  at.bury(first.number);
  BOOST_TEST(reserve_all(second, 10'000, 1000).size() == share);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(blocks_that_are_set_aside_count_until_their_writers_are_gone) {
  node at(small_tier());
  const auto in = at.add(spec_of("i"));
  client first(at, in);
  client second(at, in);
  const auto got = reserve_all(first, 1, 1000);
  at.now += at.options.reserve_timeout + tenths(1);
  at.tier->tick(at.now);
  BOOST_TEST(at.status().quarantined == got.size());
  BOOST_TEST(reserve_all(second, 10'000, 1000).size() == 0U);
  at.restart();
  BOOST_TEST(at.status().quarantined == got.size());
  BOOST_TEST(reserve_all(second, 10'000, 1000).size() == 0U);
  at.bury(first.number);
  BOOST_TEST(account_of(at, "default").reserved == 0U);
  BOOST_TEST(reserve_all(second, 10'000, 1000).size() == got.size());
}

BOOST_AUTO_TEST_CASE(engines_of_one_user_that_are_killed_one_after_the_other_leave_half_of_the_tier_to_others) {
  auto options = small_tier(32);
  options.limits.reserve_share = 1;
  node at(options);
  const std::uint64_t blocks = at.options.capacity / block;
  std::vector<instance_number> groups;
  for (const char* name : {"a", "b", "c", "d"}) groups.push_back(at.add(spec_of(name, block, 1, name)));
  std::uint64_t set_aside = 0;
  for (std::uint64_t n = 0; n < 64; ++n) {
    client engine(at, groups[n % groups.size()]);
    set_aside += reserve_all(engine, 1, blocks).size();
    while (engine.grant(1) != 0 && engine.take()) ++set_aside;
    at.tier->disconnect_session(engine.number, at.now);  // its device may still write
  }
  BOOST_TEST(set_aside <= blocks / 2 + 1);
  at.uid = 2000;
  client victim(at, at.add(spec_of("victim")));
  BOOST_TEST(reserve_all(victim, 1, 1000).size() >= blocks / 16);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(of_a_few_large_blocks_a_user_leaves_some_to_others) {
  node at(options_of(4 * (slab_bytes + 4096), slab_bytes));
  const auto in = at.add(spec_of("i", slab_bytes));
  client first(at, in);
  BOOST_TEST(reserve_all(first, 1, 10).size() == 2U);
  at.uid = 2000;
  client second(at, in);
  BOOST_TEST(reserve_all(second, 10, 10).size() == 1U);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(a_block_is_paid_for_once_by_whoever_reserved_it) {
  node at(small_tier());
  const auto in = at.add(spec_of("i", block, 2));
  client first(at, in);
  at.uid = 2000;
  client second(at, in);
  const auto got = reserve_all(first, 1, 1000, 1);
  BOOST_TEST(reserve_all(second, 1, got.size(), 2).size() == got.size());  // the other parts of the same blocks
  BOOST_TEST(reserve_all(second, 10'000, 20).size() == 20U);
  BOOST_TEST(account_of(at, "default").reserved == (got.size() + 20) * block);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(blank_blocks_asked_for_one_by_one_stay_within_a_sessions_share) {
  node at(small_tier());
  const auto in = at.add(spec_of("i"));
  client greedy(at, in);
  std::uint64_t got = 0;
  for (int n = 0; n < 1000; ++n) {
    if (greedy.grant(1) == 0) break;
    BOOST_REQUIRE(greedy.take().has_value());  // in use, so that it is not taken back
    ++got;
  }
  BOOST_TEST(got == at.options.capacity / 4 / block);
  BOOST_TEST(reserve_all(greedy, 1, 10).size() == 0U);  // both count
  client modest(at, in);
  BOOST_TEST(modest.grant(1) == 1U);
  BOOST_TEST(at.broken_identity() == "");
}

// ---------------------------------------------------------------------------------------------- pins

namespace {

/// A full tier whose oldest blocks are all pinned by one client, and another one that stores.
struct pinned_tier {
  explicit pinned_tier(store_options options = small_tier(64)) : at(std::move(options)) {
    put_all(pinner, keys_from(1, pinned));
    for (const full_key& key : keys_from(1, pinned)) BOOST_REQUIRE(pinner.pin(key).has_value());
    at.now += tenths(100);
  }
  static constexpr std::uint64_t pinned = 1024;
  node at;
  client pinner{at, at.add(spec_of("pinner")), pinned};
  client victim{at, at.add(spec_of("victim"))};
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(a_pool_that_is_pinned_whole_costs_nobody_else_anything, pinned_tier) {
  at.tier->set_water_marks(0.9, 0.85);
  const auto settle = [&] {
    while (at.tier->evict_ahead(at.now)) continue;
    at.pump();
  };
  for (std::uint64_t n = 0; n < 5000; ++n) {
    BOOST_REQUIRE((code_of(victim.put(key_of(100'000 + n))) == error_code::ok));
    settle();
  }
  const store_counters before = at.status().counters;
  constexpr std::uint64_t puts = 2000;
  for (std::uint64_t n = 0; n < puts; ++n) {
    BOOST_REQUIRE((code_of(victim.put(key_of(200'000 + n))) == error_code::ok));
    settle();
    if (n % 200 == 0) ++at.now;  // ten ticks go by
  }
  const store_counters after = at.status().counters;
  const std::uint64_t evicted = after.evicted - before.evicted;
  BOOST_TEST(evicted >= puts / 2);
  BOOST_TEST(after.put_waits - before.put_waits == 0U);  // eviction goes on ahead of need
  BOOST_TEST(after.pinned_victims - before.pinned_victims <= 10 * pinned);
  BOOST_TEST(after.victims_examined - before.victims_examined <= evicted + 10 * pinned);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_FIXTURE_TEST_CASE(what_was_pinned_is_evicted_again_once_it_is_not, pinned_tier) {
  for (std::uint64_t n = 0; n < 4000; ++n) BOOST_REQUIRE((code_of(victim.put(key_of(9000 + n))) == error_code::ok));
  BOOST_TEST(at.present(pinner.in) == pinned);
  for (std::uint32_t slot = 0; slot < pinned; ++slot) pinner.unpin(slot);
  at.now += tenths(3);
  for (std::uint64_t n = 0; n < 4000; ++n) BOOST_REQUIRE((code_of(victim.put(key_of(20'000 + n))) == error_code::ok));
  BOOST_TEST(at.present(pinner.in) < pinned / 2);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(a_quota_passes_over_what_one_instance_of_the_group_has_pinned) {
  auto options = small_tier(64);
  options.groups["team"] = {.quota = 1200 * block};
  node at(options);
  client pinner(at, at.add(spec_of("pinner", block, 1, "team")), 1024);
  client other(at, at.add(spec_of("other", block, 1, "team")));
  put_all(pinner, keys_from(1, 1000));
  for (const full_key& key : keys_from(1, 1000)) BOOST_REQUIRE(pinner.pin(key).has_value());
  at.now += tenths(100);
  put_all(other, keys_from(1, 300));
  const store_counters before = at.status().counters;
  put_all(other, keys_from(5000, 1000));
  const store_counters after = at.status().counters;
  BOOST_TEST(account_of(at, "team").used <= 1200 * block);
  BOOST_TEST(after.pinned_victims - before.pinned_victims <= 1000U);
  BOOST_TEST(after.victims_examined - before.victims_examined <= 3000U);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_AUTO_TEST_CASE(requests_that_cannot_be_served_look_at_pins_only_so_often) {
  node at(small_tier(4));
  const auto in = at.add(spec_of("i"));
  client pinner(at, in, 1024);
  std::uint64_t stored = 0;
  while (code_of(pinner.put(key_of(stored))) == error_code::ok && pinner.pin(key_of(stored))) ++stored;
  client other(at, in);
  const store_counters before = at.status().counters;
  for (int n = 0; n < 1000; ++n) BOOST_REQUIRE(other.grant(1) == 0);
  const store_counters after = at.status().counters;
  BOOST_TEST((after.pin_scans - before.pin_scans) * (stored / 64) <= 1200U, "64 pins at a time");
  BOOST_TEST(after.victims_examined - before.victims_examined <= 4 * stored);
  for (std::uint32_t slot = 0; slot < stored; ++slot) pinner.unpin(slot);
  ++at.now;
  BOOST_TEST(other.grant(1) == 1U);
}

namespace {

/// A full tier of which one half is held for a prefetch and the other one pinned.
struct held_tier {
  held_tier() : at(small_tier(4)) {
    while (code_of(holder.put(key_of(stored))) == error_code::ok) {
      if (stored % 2 == 0) {
        BOOST_REQUIRE(holder.pin(key_of(stored)).has_value());
      } else {
        hold(stored);
      }
      ++stored;
    }
    BOOST_REQUIRE(stored > 200U);
    ++at.now;
  }
  /// A job of its own for each block.
  void hold(std::uint64_t n) {
    prefetch::command command;
    command.what = prefetch::command::kind::finish;
    command.job = n + 1;
    command.session = holder.number;
    command.instance = holder.in;
    command.hold = true;
    command.keys = std::make_shared<const std::vector<full_key>>(std::vector{key_of(n)});
    BOOST_REQUIRE(at.tier->execute(command, at.now).length == 1U);
  }
  void let_go(std::uint64_t n) {
    prefetch::command command;
    command.what = prefetch::command::kind::release;
    command.job = n + 1;
    (void)at.tier->execute(command, at.now);
  }
  /// Asks for a block in vain; how many blocks were looked at.
  std::uint64_t looks_of(int requests) {
    const std::uint64_t before = at.status().counters.victims_examined;
    for (int n = 0; n < requests; ++n) BOOST_REQUIRE(other.grant(1) == 0U);
    return at.status().counters.victims_examined - before;
  }

  node at;
  std::uint64_t stored = 0;
  client holder{at, at.add(spec_of("i")), 1024};
  client other{at, holder.in};
};

}  // namespace

BOOST_FIXTURE_TEST_CASE(requests_that_cannot_be_served_look_at_what_is_held_only_once, held_tier) {
  BOOST_TEST(looks_of(1000) <= 4 * stored);
  ++at.now;
  BOOST_TEST(looks_of(1000) <= 4 * stored);
  ++at.now;
  BOOST_TEST(looks_of(1) > 0U);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_FIXTURE_TEST_CASE(what_is_let_go_is_found_at_once_though_everything_was_looked_at, held_tier) {
  (void)looks_of(3);
  let_go(1);
  BOOST_TEST(other.grant(1) == 1U);
  BOOST_REQUIRE(other.take().has_value());  // or it would be taken back for the next one
  (void)looks_of(3);
  holder.unpin(0);
  BOOST_TEST(other.grant(1) == 1U);
  BOOST_REQUIRE(other.take().has_value());
  BOOST_TEST(at.present(holder.in) == stored - 2);
  (void)looks_of(3);
  BOOST_TEST(at.broken_identity() == "");
}

BOOST_FIXTURE_TEST_CASE(a_pin_that_comes_and_goes_has_a_held_pool_looked_at_only_so_often, held_tier) {
  std::uint64_t looks = 0;
  for (int n = 0; n < 2000; ++n) {
    const auto again = holder.pin(key_of(1));
    BOOST_REQUIRE(again.has_value());
    looks += looks_of(1);
    holder.unpin(*again);
    looks += looks_of(1);
  }
  BOOST_TEST(looks <= 70'000U + 64 * stored, "64 of them are worth a look at 64 pins");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::blocks::store_tenants_test
