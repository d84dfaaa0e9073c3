// Snapshots: what is written is loaded, whole or not at all.
#include "services/manager/registry/config_snapshot.hpp"

#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/unit/services/manager/registry/registry_world.hpp"

namespace cenote::manager {

using enum answer_code;
using nlohmann::json;

namespace {

storage_use no_use(std::string_view /*name*/) {
  return storage_use::unused;
}
storage_use full_use(std::string_view /*name*/) {
  return storage_use::has_locations;
}

test::registry_world full_world() {
  auto world = test::plain_world();
  world.add_storage(R"({"global_unique_name":"t","threefs":{"mountpoint":"/m"}})");
  world.apply(world.value.switch_storage("t", storage_switch::disabled));
  const auto request =
      test::message_of<proto::admin::AddAccountRequest>(R"({"user_name":"root","password":"geheim","role":1})");
  world.apply(world.value.add_account(request, *make_secret("geheim")));
  return world;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(config_snapshots)

BOOST_AUTO_TEST_CASE(a_snapshot_has_everything_but_secrets) {
  const auto snapshot = json::parse(make_snapshot(full_world().value));
  BOOST_TEST((snapshot["format"] == 1 && snapshot["storages"].size() == 2U && snapshot["groups"].size() == 1U));
  BOOST_TEST(snapshot["storages"][1]["is_disabled"] == true);
  BOOST_TEST(snapshot["instances"][0]["instance_id"] == "i");
  BOOST_TEST(snapshot["accounts"].dump() == R"([{"groups":[],"role":"ROLE_ADMIN","user_name":"root"}])");
}

BOOST_AUTO_TEST_CASE(a_snapshot_makes_the_same_registry_elsewhere) {
  const auto source = full_world();
  test::registry_world target;
  BOOST_TEST(target.apply(load_snapshot(target.value, make_snapshot(source.value), no_use)) == ok);
  auto expected = json::parse(make_snapshot(source.value));
  expected["accounts"] = json::array();
  BOOST_TEST(json::parse(make_snapshot(target.value)) == expected);
  for (const char* part : {"storage `s1`: added", "storage `t`: disabled", "group `g`: added", "instance `i`: added",
                           "account `root`: left out"}) {
    BOOST_TEST(target.notes(part), target.note);
  }
  const auto loaded = manager_registry::load(target.stored());
  BOOST_TEST(loaded.damaged_rows == 0U);
  BOOST_TEST(make_snapshot(loaded.value) == make_snapshot(target.value));
}

BOOST_AUTO_TEST_CASE(a_registrys_own_snapshot_changes_nothing) {
  auto world = full_world();
  BOOST_TEST(world.apply(load_snapshot(world.value, make_snapshot(world.value), full_use)) == ok);
  BOOST_TEST((world.changed_rows == 0U && world.note.empty()), world.note);
}

BOOST_AUTO_TEST_CASE(differences_are_updates_and_what_a_snapshot_lacks_stays) {
  auto world = full_world();
  auto snapshot = json::parse(make_snapshot(world.value));
  snapshot["storages"].erase(1);
  snapshot["storages"][0]["capacity"] = "77";
  snapshot["groups"][0]["quota"]["capacity"] = "5";
  snapshot["accounts"][0]["groups"] = {"g"};
  BOOST_TEST(world.apply(load_snapshot(world.value, snapshot.dump(), full_use)) == ok);
  BOOST_TEST(world.value.find_storage("s1")->terms.capacity == 77U);
  BOOST_TEST((world.value.find_group("g")->terms.capacity == 5U && world.value.find_group("g")->terms.version == 2));
  BOOST_TEST((world.value.find_storage("t") && !world.value.find_account("root")->may_see("h")));
  BOOST_TEST(world.value.check("root", "geheim"));
  for (const char* part : {"storage `s1`: updated", "group `g`: updated", "account `root`: updated"}) {
    BOOST_TEST(world.notes(part), world.note);
  }
}

BOOST_AUTO_TEST_CASE(one_thing_that_is_refused_leaves_everything_as_it_was) {
  const auto world = full_world();
  auto snapshot = json::parse(make_snapshot(world.value));
  snapshot["storages"].push_back(json::parse(R"({"global_unique_name":"n","nfs":{"root_path":"/n"}})"));
  const auto code_of = [&](const json& text, storage_use (*use)(std::string_view)) {
    const auto change = load_snapshot(world.value, text.dump(), use);
    return change ? ok : change.error().code;
  };
  BOOST_TEST(code_of(snapshot, no_use) == ok);
  auto moved = snapshot;
  moved["storages"][0]["nfs"]["root_path"] = "/moved";
  BOOST_TEST(code_of(moved, no_use) == ok);
  BOOST_TEST(code_of(moved, full_use) == in_use);
  auto other = snapshot;
  other["instances"][0]["block_size"] = 1;
  BOOST_TEST(code_of(other, no_use) == duplicate_entity);
  auto dangling = snapshot;
  dangling["groups"][0]["storage_candidates"] = {"none"};
  BOOST_TEST(code_of(dangling, no_use) == not_found);
  auto powerless = snapshot;
  powerless["accounts"][0]["role"] = "ROLE_USER";
  BOOST_TEST(code_of(powerless, no_use) == in_use);
  const auto change = load_snapshot(world.value, other.dump(), no_use);
  BOOST_TEST(change.error().message.find("config_snapshot: instance `i`") != std::string::npos, change.error().message);
}

BOOST_AUTO_TEST_CASE(texts_that_are_no_snapshots_are_refused) {
  const manager_registry empty;
  for (const char* text : {"", "null", "[]", "{", "{}", R"({"format":2})", R"({"format":1,"groups":{}})",
                           R"({"format":1,"storages":[{}]})"}) {
    const auto change = load_snapshot(empty, text, no_use);
    BOOST_TEST_REQUIRE(!change.has_value(), text);
    BOOST_TEST(change.error().code == invalid_argument, text);
  }
  BOOST_TEST(load_snapshot(empty, R"({"format":1})", no_use).has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
