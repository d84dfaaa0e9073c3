// Storages: which are taken, how they change, and the list that clients get.
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <string>

#include "services/manager/registry/storage_listing.hpp"
#include "tests/unit/services/manager/registry/registry_world.hpp"

namespace cenote::manager {

using enum answer_code;
using test::changed;
using test::plain_storage;

BOOST_AUTO_TEST_SUITE(storages)

BOOST_AUTO_TEST_CASE(a_folder_is_a_storage) {
  test::registry_world world;
  BOOST_TEST(world.add_storage(plain_storage) == ok);
  const auto entry = world.value.find_storage("s1");
  BOOST_REQUIRE(entry);
  BOOST_TEST(entry->terms.root == "/mnt/kv");
  BOOST_TEST(entry->terms.blocks_per_file == 8U);
  BOOST_TEST(entry->terms.read_weight == 5U);
  BOOST_TEST((entry->terms.is_enabled && entry->terms.number == 0 && entry->terms.type == storage_type::nfs));
  BOOST_TEST(entry->config.storage_type() == proto::ST_NFS);
  BOOST_TEST(world.rows.contains("s/s1"));
}

BOOST_AUTO_TEST_CASE(a_mount_of_3fs_has_its_folder_below_the_mount) {
  test::registry_world world;
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"t","capacity":"9","read_weight":0,
      "threefs":{"mountpoint":"/3fs//a/./","root_dir":"/kv/x/"}})") == ok);
  const auto& terms = world.value.find_storage("t")->terms;
  BOOST_TEST(terms.root == "/3fs/a/kv/x");
  BOOST_TEST((terms.type == storage_type::threefs && terms.capacity == 9U));
  BOOST_TEST((terms.read_weight == 0U && terms.blocks_per_file == 1U));
}

BOOST_AUTO_TEST_CASE(a_redis_server_is_a_storage) {
  test::registry_world world;
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"r","redis":{"url":"redis://h:1","auth_file":"/a"}})") == ok);
  BOOST_TEST(world.value.find_storage("r")->terms.server_url == "redis://h:1");
  BOOST_TEST(world.value.find_storage("r")->terms.server_auth_file == "/a");
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"s","redis":{"url":"redis://h:1,i:1"}})") == invalid_argument);
  BOOST_TEST(world.notes("several servers"));
}

BOOST_AUTO_TEST_CASE(what_can_never_work_is_refused_with_all_its_fields) {
  test::registry_world world;
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"a/b","nfs":{"root_path":"x"},"capacity":-1,"read_weight":-1,
      "storage_type":"ST_3FS"})") == invalid_argument);
  for (const char* field : {"global_unique_name", "nfs.root_path", "capacity", "read_weight", "storage_type"}) {
    BOOST_TEST(world.notes(field), field << " in " << world.note);
  }
  BOOST_TEST(world.rows.empty());
}

BOOST_AUTO_TEST_CASE(names_and_roots_that_are_no_places_are_refused) {
  test::registry_world world;
  const std::string longest(255, 'n');
  for (const std::string& name : {std::string(), std::string("."), std::string(".."), std::string("a/b"),
                                  std::string("a\\u0000"), std::string("a\\n"), longest + "n"}) {
    BOOST_TEST(world.add_storage(changed(plain_storage, "s1", name)) == invalid_argument, name);
  }
  BOOST_TEST(world.add_storage(changed(plain_storage, "s1", longest)) == ok);
  for (const char* root :
       {"", "mnt", "./x", "/a/../b", "/..", "/a/..", "/a\\u0000b", "/a?b", "/a#b", "/a\\\"b", "/a\\\\b"}) {
    BOOST_TEST(world.add_storage(changed(plain_storage, "/mnt/kv/", root)) == invalid_argument, root);
    BOOST_TEST(world.add_storage(changed(R"({"global_unique_name":"t","threefs":{"mountpoint":"ROOT"}})", "ROOT",
                                         root)) == invalid_argument,
               root);
  }
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"t","threefs":{"mountpoint":"/m","root_dir":"a/../.."}})") ==
             invalid_argument);
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"x"})") == invalid_argument);
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"r","redis":{"url":"http://h","auth_file":"a"}})") ==
             invalid_argument);
  BOOST_TEST((world.notes("redis.url") && world.notes("redis.auth_file")));
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"m","mooncake":{"protocol":"rdma"}})") == unsupported);
  BOOST_TEST(world.value.storages().size() == 1U);
}

BOOST_AUTO_TEST_CASE(types_that_are_not_built_are_unsupported_and_named) {
  test::registry_world world;
  for (const auto& [part, type] : std::map<std::string, std::string>{
           {R"("tair_mem_pool":{})", "ST_TAIRMEMPOOL"},
           {R"("storage_type":"ST_TAIRMEMPOOL_SSD","tair_mem_pool":{})", "ST_TAIRMEMPOOL_SSD"},
           {R"("vcnsthreefs":{})", "ST_VCNS_3FS"},
           {R"("mooncake":{})", "ST_MOONCAKE"},
           {R"("dummy":{})", "ST_DUMMY"},
           {R"("storage_type":"ST_EVENT_REPORT_L2","event_report":{})", "ST_EVENT_REPORT_L2"},
           {R"("storage_type":"ST_EVENT_REPORT_L1P5","event_report":{})", "ST_EVENT_REPORT_L1P5"},
           {R"("cenote":{"cluster_id":"c"})", "ST_CENOTE"},
           {R"("local":{})", "local"}}) {
    BOOST_TEST(world.add_storage(R"({"global_unique_name":"u",)" + part + "}") == unsupported, part);
    BOOST_TEST(world.notes(type), world.note);
  }
}

BOOST_AUTO_TEST_CASE(a_type_is_taken_once_its_plug_in_is_there) {
  test::registry_world world;
  world.value = manager_registry({storage_type::mooncake, storage_type::tair_mempool_ssd});
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"m","mooncake":{"protocol":"tcp","unknown":1}})") == ok);
  const auto& terms = world.value.find_storage("m")->terms;
  BOOST_TEST((terms.type == storage_type::mooncake && terms.read_weight == 3U));
  BOOST_TEST(terms.plugin_spec == R"({"local_hostname":"","metadata_connstring":"","protocol":"tcp","rdma_device":"",)"
                                  R"("master_service_entry":""})");
  BOOST_TEST(
      world.add_storage(R"({"global_unique_name":"t","storage_type":"ST_TAIRMEMPOOL_SSD","tair_mem_pool":{}})") == ok);
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"u","tair_mem_pool":{}})") == unsupported);
  BOOST_TEST(world.notes("tairmempool=PROGRAM"), world.note);
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"l","mooncake":{"protocol":")" + std::string(5'000, 'x') +
                               R"("}})") == invalid_argument);
  const auto other = test::storage(R"({"global_unique_name":"m","mooncake":{"master_service_entry":"h:1"}})");
  BOOST_TEST(world.apply(world.value.update_storage(other, storage_use::has_locations, change_force::none)) == in_use);
  BOOST_TEST(world.apply(world.value.update_storage(other, storage_use::unused, change_force::none)) == ok);
}

BOOST_AUTO_TEST_CASE(a_storage_outlives_its_plug_in) {
  test::registry_world world;
  world.value = manager_registry({storage_type::dummy});
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"d","dummy":{"root_path":"/d"}})") == ok);
  const auto loaded = manager_registry::load(world.stored());
  BOOST_TEST(loaded.damaged_rows == 0U);
  BOOST_TEST(loaded.value.find_storage("d")->terms.plugin_spec == R"({"root_path":"/d","key_count_per_file":0})");
  BOOST_TEST((loaded.value.add_storage(test::storage(R"({"global_unique_name":"e","dummy":{}})")).error().code ==
              unsupported));
  const auto again = manager_registry::load(world.stored(), {storage_type::dummy});
  BOOST_TEST(again.value.add_storage(test::storage(R"({"global_unique_name":"e","dummy":{}})")).has_value());
}

BOOST_AUTO_TEST_CASE(the_same_storage_again_is_fine_and_another_one_is_a_duplicate) {
  auto world = test::plain_world();
  BOOST_TEST(world.add_storage(plain_storage) == ok);
  BOOST_TEST(world.changed_rows == 0U);
  BOOST_TEST(world.add_storage(changed(plain_storage, "/mnt/kv/", "/x")) == duplicate_entity);
  BOOST_TEST((world.notes("nfs.root_path") && world.notes("/mnt/kv/") && world.notes("/x")), world.note);
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"s1","threefs":{"mountpoint":"/m"}})") == duplicate_entity);
}

BOOST_AUTO_TEST_CASE(the_operators_switch_is_kept_and_no_request_to_add_sets_it) {
  auto world = test::plain_world();
  BOOST_TEST(world.apply(world.value.switch_storage("s1", storage_switch::disabled)) == ok);
  BOOST_TEST(!world.value.find_storage("s1")->terms.is_enabled);
  BOOST_TEST(world.value.find_storage("s1")->config.is_disabled());
  BOOST_TEST(world.apply(world.value.switch_storage("s1", storage_switch::disabled)) == ok);
  BOOST_TEST(world.changed_rows == 0U);
  BOOST_TEST(world.add_storage(plain_storage) == ok);
  const auto update = test::storage(changed(plain_storage, "\"nfs\"", "\"capacity\":7,\"nfs\""));
  BOOST_TEST(world.apply(world.value.update_storage(update, storage_use::has_locations, change_force::none)) == ok);
  BOOST_TEST(!world.value.find_storage("s1")->terms.is_enabled);
  BOOST_TEST(world.apply(world.value.switch_storage("s1", storage_switch::enabled)) == ok);
  BOOST_TEST(world.value.find_storage("s1")->terms.is_enabled);
  BOOST_TEST(world.apply(world.value.switch_storage("none", storage_switch::enabled)) == not_found);
  BOOST_TEST(world.add_storage(R"({"global_unique_name":"d","is_disabled":true,"nfs":{"root_path":"/d"}})") == ok);
  BOOST_TEST(world.value.find_storage("d")->terms.is_enabled);
}

BOOST_AUTO_TEST_CASE(addresses_below_locations_change_by_force_alone) {
  for (const auto& [part, next] :
       std::map<std::string, std::string>{{"/mnt/kv/", "/x"},
                                          {":8", ":9"},
                                          {R"("nfs":{"root_path":"/mnt/kv/",)", R"("threefs":{"mountpoint":"/m",)"}}) {
    auto world = test::plain_world();
    const auto config = test::storage(changed(plain_storage, part, next));
    BOOST_TEST(world.apply(world.value.update_storage(config, storage_use::has_locations, change_force::none)) ==
               in_use);
    BOOST_TEST(world.apply(world.value.update_storage(config, storage_use::unused, change_force::none)) == ok);
    BOOST_TEST(!world.dropped_storage.has_value());
    world = test::plain_world();
    BOOST_TEST(world.apply(world.value.update_storage(config, storage_use::has_locations,
                                                      change_force::drops_locations)) == ok);
    BOOST_TEST((world.dropped_storage == std::uint8_t{0}));
    BOOST_TEST(world.value.find_storage("s1")->terms.number == 0);
  }
}

BOOST_AUTO_TEST_CASE(other_terms_change_below_locations) {
  auto world = test::plain_world();
  const auto config = test::storage(changed(plain_storage, "/mnt/kv/\"", "/mnt/./kv\",\"unknown\":1"));
  BOOST_TEST(world.apply(world.value.update_storage(config, storage_use::has_locations, change_force::none)) == ok);
  BOOST_TEST(world.value.find_storage("s1")->terms.root == "/mnt/kv");
  const auto absent = test::storage(changed(plain_storage, "s1", "s9"));
  BOOST_TEST(world.apply(world.value.update_storage(absent, storage_use::unused, change_force::none)) == not_found);
  const auto wrong = test::storage(changed(plain_storage, "/mnt/kv/", ""));
  BOOST_TEST(world.apply(world.value.update_storage(wrong, storage_use::unused, change_force::none)) ==
             invalid_argument);
}

BOOST_AUTO_TEST_CASE(a_storage_in_use_is_removed_by_force_alone) {
  auto world = test::plain_world();
  BOOST_TEST(world.apply(world.value.remove_storage("s9", storage_use::unused, change_force::none)) == not_found);
  BOOST_TEST(world.apply(world.value.remove_storage("s1", storage_use::unused, change_force::none)) == in_use);
  BOOST_TEST(world.notes("`g`"));
  BOOST_TEST(world.add_storage(changed(plain_storage, "s1", "s2")) == ok);
  BOOST_TEST(world.apply(world.value.remove_storage("s2", storage_use::has_locations, change_force::none)) == in_use);
  BOOST_TEST(world.apply(world.value.remove_storage("s2", storage_use::unused, change_force::none)) == ok);
  BOOST_TEST(!world.dropped_storage.has_value());
  BOOST_TEST(world.apply(world.value.remove_storage("s1", storage_use::has_locations, change_force::drops_locations)) ==
             ok);
  BOOST_TEST((world.dropped_storage == std::uint8_t{0}));
  BOOST_TEST(world.value.storages().empty());
  const auto group = world.value.find_group("g");
  BOOST_TEST((group->terms.candidates.empty() && group->group.storage_candidates().empty()));
  BOOST_TEST((group->terms.version == 2 && group->group.version() == 2));
  BOOST_TEST((world.notes("`g`") && !world.rows.contains("s/s1") && !world.rows.contains("s/s2")));
  BOOST_TEST(manager_registry::load(world.stored()).damaged_rows == 0U);
}

BOOST_AUTO_TEST_CASE(numbers_are_not_taken_again_at_once_and_end_at_255_storages) {
  test::registry_world world;
  BOOST_TEST(world.add_storage(changed(plain_storage, "s1", "first")) == ok);
  BOOST_TEST(world.apply(world.value.remove_storage("first", storage_use::unused, change_force::none)) == ok);
  for (int i = 0; i < 255; ++i) {
    const std::string name = "n" + std::to_string(i);
    BOOST_TEST_REQUIRE(world.add_storage(changed(plain_storage, "s1", name)) == ok);
    BOOST_TEST(world.value.find_storage(name)->terms.number == (i + 1) % 255);
  }
  BOOST_TEST(world.add_storage(changed(plain_storage, "s1", "more")) == reach_max_entity_capacity);
  BOOST_TEST(world.apply(world.value.remove_storage("n9", storage_use::unused, change_force::none)) == ok);
  BOOST_TEST(world.add_storage(changed(plain_storage, "s1", "more")) == ok);
  BOOST_TEST(world.value.find_storage("more")->terms.number == 10);
}

BOOST_AUTO_TEST_CASE(clients_get_the_candidates_in_their_order) {
  test::registry_world world;
  world.add_storage(plain_storage);
  world.add_storage(
      R"({"global_unique_name":"t \"1\"","threefs":{"cluster_name":"c","mountpoint":"/m","root_dir":"d"}})");
  world.add_storage(R"({"global_unique_name":"r","redis":{"url":"redis://h"}})");
  world.apply(world.value.switch_storage("r", storage_switch::disabled));
  BOOST_REQUIRE(world.create_group(R"({"name":"g","storage_candidates":["t \"1\"","s1","r"]})") == ok);
  storage_set available;
  available.set(0).set(2);
  const auto list = nlohmann::json::parse(storage_configs(world.value, world.value.find_group("g")->terms, available));
  const auto expected = nlohmann::json::parse(R"([
      {"type":"hf3fs","is_available":false,"global_unique_name":"t \"1\"","storage_spec":{"cluster_name":"c",
       "mountpoint":"/m","root_dir":"d","key_count_per_file":0,"touch_file_when_create":false}},
      {"type":"file","is_available":true,"global_unique_name":"s1",
       "storage_spec":{"root_path":"/mnt/kv/","key_count_per_file":8}},
      {"type":"redis","is_available":false,"global_unique_name":"r","storage_spec":{"url":"redis://h","auth_file":""}}])");
  BOOST_TEST(list == expected, list.dump());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
