// Rows of the registry: what was changed is read back, and damage costs the damaged row alone.
#include <boost/test/unit_test.hpp>
#include <random>
#include <string>

#include "services/manager/registry/config_snapshot.hpp"
#include "tests/unit/services/manager/registry/registry_world.hpp"

namespace cenote::manager {

using enum answer_code;

namespace {

test::registry_world stored_world() {
  auto world = test::plain_world();
  world.add_storage(R"({"global_unique_name":"t","threefs":{"mountpoint":"/m"}})");
  world.apply(world.value.switch_storage("t", storage_switch::disabled));
  const auto request = test::message_of<proto::admin::AddAccountRequest>(
      R"({"user_name":"root","password":"p","role":1,"groups":["g"]})");
  world.apply(world.value.add_account(request, {.salt = {std::byte{7}}, .key = {std::byte{9}}, .n = 2}));
  BOOST_TEST_REQUIRE(world.rows.size() == 6U);
  return world;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(registry_rows)

BOOST_AUTO_TEST_CASE(rows_make_the_same_registry_again) {
  const auto world = stored_world();
  const auto loaded = manager_registry::load(world.stored());
  BOOST_TEST(loaded.damaged_rows == 0U);
  BOOST_TEST(make_snapshot(loaded.value) == make_snapshot(world.value));
  BOOST_TEST((loaded.value.find_storage("t")->terms.number == 1 && !loaded.value.find_storage("t")->terms.is_enabled));
  BOOST_TEST(loaded.value.find_instance("i")->terms.number == 1U);
  BOOST_TEST(loaded.value.find_instance("i")->terms.all_specs == 3U);
  const auto account = loaded.value.find_account("root");
  BOOST_TEST(
      (account->secret.n == 2U && account->secret.salt[0] == std::byte{7} && account->secret.key[0] == std::byte{9}));
  BOOST_TEST((account->role == account_role::admin && !account->may_see("h")));
}

BOOST_AUTO_TEST_CASE(rows_of_others_are_left_alone) {
  auto rows = stored_world().stored();
  for (const char* key : {"", "e/1/2", "epoch", "s", "x/s1", "nn", "n/"}) rows.push_back({.key = key, .value = "junk"});
  BOOST_TEST(manager_registry::load(rows).damaged_rows == 0U);
}

BOOST_AUTO_TEST_CASE(a_damaged_row_is_skipped_and_counted) {
  const auto world = stored_world();
  for (const auto& [key, value] : world.rows) {
    auto damaged = world;
    damaged.rows[key].back() = static_cast<char>(value.back() ^ 1);
    const auto loaded = manager_registry::load(damaged.stored());
    BOOST_TEST(loaded.damaged_rows == 1U, key);
    const auto& value_of = loaded.value;
    BOOST_TEST((value_of.storages().size() + value_of.groups().size() + value_of.instances().size() +
                value_of.accounts().size()) == (key == "n" ? 5U : 4U));
  }
}

BOOST_AUTO_TEST_CASE(a_row_under_another_key_is_damaged) {
  auto world = stored_world();
  world.rows["s/s2"] = world.rows["s/s1"];
  world.rows["i/j"] = pack_row("i/j", *unpack_row("i/i", world.rows["i/i"]));
  BOOST_TEST(manager_registry::load(world.stored()).damaged_rows == 2U);
}

BOOST_AUTO_TEST_CASE(numbers_that_are_there_twice_are_taken_once) {
  auto world = stored_world();
  proto::registry::StorageRow storage;
  *storage.mutable_storage() = test::storage(test::changed(test::plain_storage, "s1", "s2"));
  world.rows["s/s2"] = pack_row("s/s2", storage.SerializeAsString());
  proto::registry::InstanceRow instance;
  *instance.mutable_instance() = world.value.find_instance("i")->info;
  instance.mutable_instance()->set_instance_id("j");
  instance.set_number(1);
  world.rows["i/j"] = pack_row("i/j", instance.SerializeAsString());
  const auto loaded = manager_registry::load(world.stored());
  BOOST_TEST(loaded.damaged_rows == 2U);
  BOOST_TEST((loaded.value.storages().size() == 2U && loaded.value.instances().size() == 1U));
}

BOOST_AUTO_TEST_CASE(content_that_no_rule_lets_in_is_damage) {
  auto world = stored_world();
  proto::registry::StorageRow storage;
  *storage.mutable_storage() = test::storage(R"({"global_unique_name":"evil","nfs":{"root_path":"/a/../../etc"}})");
  storage.set_number(9);
  world.rows["s/evil"] = pack_row("s/evil", storage.SerializeAsString());
  storage.mutable_storage()->mutable_nfs()->set_root_path("/a");
  storage.set_number(255);
  world.rows["s/high"] = pack_row("s/high", storage.SerializeAsString());
  proto::registry::AccountRow account;
  account.mutable_account()->set_user_name("a");
  account.mutable_password()->set_salt(std::string(16, 's'));
  account.mutable_password()->set_key(std::string(32, 'k'));
  account.mutable_password()->set_n(1ULL << 40U);
  world.rows["a/a"] = pack_row("a/a", account.SerializeAsString());
  BOOST_TEST(manager_registry::load(world.stored()).damaged_rows == 3U);
}

BOOST_AUTO_TEST_CASE(without_its_counters_no_number_of_a_present_instance_is_given_again) {
  auto world = stored_world();
  world.rows.erase("n");
  world.value = manager_registry::load(world.stored()).value;
  BOOST_TEST(world.add_instance(test::changed(test::plain_instance, "\"i\"", "\"j\"")) == ok);
  BOOST_TEST(world.value.find_instance("j")->terms.number == 2U);
}

BOOST_AUTO_TEST_CASE(random_damage_is_counted_row_by_row) {
  const auto world = stored_world();
  std::mt19937_64 random(3);
  for (int round = 0; round < 3000; ++round) {
    auto rows = world.stored();
    std::size_t damaged = 0;
    for (stored_row& row : rows) {
      if (random() % 3 != 0) continue;
      const std::string original = row.value;
      switch (random() % 4) {
        case 0: row.value.resize(random() % row.value.size()); break;
        case 1: row.value[random() % row.value.size()] = static_cast<char>(random()); break;
        case 2: row.value += static_cast<char>(random()); break;
        default: row.value.assign(random() % 64, static_cast<char>(random()));
      }
      damaged += row.value != original ? 1U : 0U;
    }
    BOOST_TEST_REQUIRE(manager_registry::load(rows).damaged_rows == damaged);
  }
}

BOOST_AUTO_TEST_CASE(random_contents_behind_sound_headers_are_taken_or_counted) {
  const auto world = stored_world();
  std::mt19937_64 random(4);
  std::size_t damaged = 0;
  for (int round = 0; round < 3000; ++round) {
    auto rows = world.stored();
    stored_row& row = rows[random() % rows.size()];
    std::string content(*unpack_row(row.key, row.value));
    for (std::size_t i = 1 + random() % 3; i > 0; --i) content[random() % content.size()] = static_cast<char>(random());
    row.value = pack_row(row.key, content);
    damaged += manager_registry::load(rows).damaged_rows;
  }
  BOOST_TEST((damaged > 500U && damaged <= 3000U), damaged);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
