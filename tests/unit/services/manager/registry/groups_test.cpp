// Groups: which are taken, and how their versions are compared and set.
#include <boost/test/unit_test.hpp>
#include <string>

#include "tests/unit/services/manager/registry/registry_world.hpp"

namespace cenote::manager {

using enum answer_code;
using test::changed;
using test::plain_group;

BOOST_AUTO_TEST_SUITE(groups)

BOOST_AUTO_TEST_CASE(a_group_has_its_terms) {
  auto world = test::plain_world();
  const auto& terms = world.value.find_group("g")->terms;
  BOOST_TEST((terms.candidates == std::vector<std::string>{"s1"}));
  BOOST_TEST((terms.capacity == 1000U && terms.max_keys == 100U && terms.max_instances == 2U && terms.version == 1));
  BOOST_TEST_REQUIRE(terms.find_quota(storage_type::nfs) != nullptr);
  BOOST_TEST(terms.find_quota(storage_type::nfs)->capacity == 500U);
  BOOST_TEST(terms.find_quota(storage_type::threefs) == nullptr);
  BOOST_TEST((terms.used_percentage == 0.8 && terms.policy == "lru" && terms.step_percentage == 5U));
  BOOST_TEST((terms.budget == budget_policy::group_lru && terms.preference == preference_rule::none));
  BOOST_TEST(!terms.is_paused);
}

BOOST_AUTO_TEST_CASE(a_group_without_settings_has_defaults) {
  auto world = test::plain_world();
  BOOST_TEST(world.create_group(R"({"name":"d","storage_candidates":["s1"]})") == ok);
  const auto& terms = world.value.find_group("d")->terms;
  BOOST_TEST((terms.used_percentage == 0.9 && terms.used_size == 0U && terms.capacity == 0U && terms.max_keys == 0U));
}

BOOST_AUTO_TEST_CASE(policies_and_steps_are_read) {
  auto world = test::plain_world();
  BOOST_TEST(world.create_group(R"({"name":"d","storage_candidates":["s1"],"reclaim_paused":true,"cache_config":{
      "data_storage_strategy":"CPS_PREFER_3FS","reclaim_strategy":{"reclaim_policy":"POLICY_TTL","ttl_seconds":60,
      "ttl_sliding":true,"trigger_strategy":{"used_size":"77"},"reclaim_step_size":9,"reclaim_step_percentage":10,
      "delay_before_delete_ms":50,"trigger_period_seconds":3,"instance_reclaim_budget_policy":"USAGE_PROPORTIONAL"}}})") ==
             ok);
  const auto& terms = world.value.find_group("d")->terms;
  BOOST_TEST((terms.preference == preference_rule::first && terms.preferred_type == storage_type::threefs));
  BOOST_TEST((terms.policy == "ttl" && terms.ttl_seconds == 60U && terms.is_ttl_sliding && terms.is_paused));
  BOOST_TEST((terms.used_size == 77U && terms.used_percentage == 0 && terms.step_size == 9U));
  BOOST_TEST(
      (terms.step_percentage == 10U && terms.delay_before_delete_ms == 50U && terms.trigger_period_seconds == 3U));
  BOOST_TEST((terms.budget == budget_policy::usage_proportional));
}

BOOST_AUTO_TEST_CASE(all_that_can_never_work_is_named_at_once) {
  auto world = test::plain_world();
  BOOST_TEST(world.create_group(R"({"name":"","version":-1,"max_instance_count":-1,
      "storage_candidates":["s1","s1"],"quota":{"quota_config":[{"storage_type":0},{"storage_type":4},{"storage_type":4}]},
      "cache_config":{"data_storage_strategy":77,"reclaim_strategy":{"reclaim_policy":9,"ttl_seconds":-1,
      "trigger_strategy":{"used_percentage":-0.5},"reclaim_step_size":-1,"reclaim_step_percentage":101,
      "delay_before_delete_ms":-1,"trigger_period_seconds":-1,"instance_reclaim_budget_policy":5},
      "meta_indexer_config":{"max_key_count":-1,"mutex_shard_num":10,"meta_cache_policy_config":{"type":"fifo"}}}})") ==
             invalid_argument);
  for (const char* field :
       {"name: ", "version: ", "max_instance_count: ", "storage_candidates[1]: ",
        "quota.quota_config[0].storage_type: ", "quota.quota_config[2].storage_type: ", "data_storage_strategy: ",
        "reclaim_policy: ", "ttl_seconds: ", "used_percentage: ", "reclaim_step_size: ", "reclaim_step_percentage: ",
        "delay_before_delete_ms: ", "trigger_period_seconds: ", "instance_reclaim_budget_policy: ", "max_key_count: ",
        "mutex_shard_num: ", "meta_cache_policy_config.type: "}) {
    BOOST_TEST(world.notes(field), field << " in " << world.note);
  }
}

BOOST_AUTO_TEST_CASE(settings_of_the_originals_index_are_refused_where_it_refuses_them) {
  auto world = test::plain_world();
  const auto create = [&](std::string_view part, std::string_view next) {
    return world.create_group(changed(changed(plain_group, "\"g\"", "\"x\""), part, next));
  };
  BOOST_TEST(create("\"mutex_shard_num\":16", "\"mutex_shard_num\":10") == invalid_argument);
  BOOST_TEST(create("\"mutex_shard_num\":16", "\"mutex_shard_num\":128") == invalid_argument);
  BOOST_TEST(create("\"mutex_shard_num\":16", "\"mutex_shard_num\":-16") == invalid_argument);
  BOOST_TEST(create("\"mutex_shard_num\":16", "\"meta_cache_policy_config\":{\"type\":\"fifo\"}") == invalid_argument);
  BOOST_TEST(create("\"mutex_shard_num\":16", "\"meta_cache_policy_config\":{\"type\":\"LRU\"}") == ok);
}

BOOST_AUTO_TEST_CASE(levels_are_above_nothing) {
  auto world = test::plain_world();
  for (const char* level : {"0", "-1", "\"NaN\"", "\"Infinity\""}) {
    BOOST_TEST(world.create_group(changed(changed(plain_group, "\"g\"", "\"x\""), "0.8", level)) == invalid_argument,
               level);
  }
  BOOST_TEST(world.create_group(changed(changed(plain_group, "\"g\"", "\"x\""), "0.8", "3.2")) == ok);
}

BOOST_AUTO_TEST_CASE(policies_by_name_are_those_of_the_registry_of_policies) {
  auto world = test::plain_world();
  const auto create = [&](const std::string& name, const std::string& policy) {
    return world.create_group(R"({"name":")" + name + R"(","storage_candidates":["s1"],"cache_config":{)" +
                              R"("reclaim_strategy":{"reclaim_policy":"POLICY_LFU","reclaim_policy_name":")" + policy +
                              R"("}}})");
  };
  for (const char* policy : {"lru", "lfu", "arc", "auto"}) {
    BOOST_TEST(create(policy, policy) == ok, policy);
    BOOST_TEST(world.value.find_group(policy)->terms.policy == policy);
  }
  BOOST_TEST(create("x", "newest") == invalid_argument);
  BOOST_TEST(create("x", "ttl") == invalid_argument);
  BOOST_TEST(world.notes("ttl_seconds"));
}

BOOST_AUTO_TEST_CASE(candidates_exist) {
  auto world = test::plain_world();
  BOOST_TEST(world.create_group(R"({"name":"x","storage_candidates":["s1","s8","s9"]})") == not_found);
  BOOST_TEST((world.notes("s8") && world.notes("s9")), world.note);
  BOOST_TEST(world.create_group(
                 R"({"name":"x","storage_candidates":["s1"],"event_report_storage_candidates":["e"]})") == not_found);
  BOOST_TEST(world.create_group(R"({"name":"x"})") == invalid_argument);
  BOOST_TEST(world.update_group(R"({"name":"g","version":2,"storage_candidates":["s9"]})", 1) == not_found);
}

BOOST_AUTO_TEST_CASE(a_quota_of_a_type_without_candidates_is_allowed_and_remarked) {
  auto world = test::plain_world();
  BOOST_TEST(world.create_group(changed(changed(plain_group, "\"g\"", "\"x\""), "ST_NFS", "ST_TAIRMEMPOOL")) == ok);
  BOOST_TEST(world.notes("ST_TAIRMEMPOOL"), world.note);
}

BOOST_AUTO_TEST_CASE(strategies_of_migration_are_unsupported) {
  auto world = test::plain_world();
  BOOST_TEST(world.create_group(R"({"name":"x","storage_candidates":["s1"],"cache_config":{"migration_config":{}}})") ==
             ok);
  BOOST_TEST(world.create_group(R"({"name":"y","storage_candidates":["s1"],
      "cache_config":{"migration_config":{"strategies":[{"source_storage_name":"s1"}]}}})") == unsupported);
}

BOOST_AUTO_TEST_CASE(the_same_group_again_is_fine_and_another_one_is_a_duplicate) {
  auto world = test::plain_world();
  BOOST_TEST(world.create_group(plain_group) == ok);
  BOOST_TEST(world.changed_rows == 0U);
  BOOST_TEST(world.create_group(changed(plain_group, "0.8", "0.7")) == duplicate_entity);
  BOOST_TEST((world.notes("cache_config.reclaim_strategy.trigger_strategy.used_percentage") && world.notes("0.8") &&
              world.notes("0.7")),
             world.note);
}

BOOST_AUTO_TEST_CASE(versions_are_compared_and_set) {
  auto world = test::plain_world();
  const std::string second = changed(plain_group, "\"version\":1", "\"version\":2");
  BOOST_TEST(world.update_group(second, 1) == ok);
  BOOST_TEST(world.value.find_group("g")->terms.version == 2);
  BOOST_TEST(world.update_group(changed(plain_group, "\"version\":1", "\"version\":3"), 1) == version_conflict);
  BOOST_TEST(world.notes("has version 2"), world.note);
  BOOST_TEST(world.update_group(second, 2) == version_conflict);
  BOOST_TEST(world.update_group(changed(plain_group, "\"version\":1", "\"version\":9"), 2) == ok);
  BOOST_TEST(world.update_group(changed(plain_group, "\"g\"", "\"x\""), 0) == not_found);
  BOOST_TEST(world.value.find_group("g")->group.version() == 9);
}

BOOST_AUTO_TEST_CASE(a_group_with_instances_stays) {
  auto world = test::plain_world();
  BOOST_TEST(world.apply(world.value.remove_group("g")) == in_use);
  BOOST_TEST(world.apply(world.value.remove_instance("", "i")) == ok);
  BOOST_TEST(world.apply(world.value.remove_group("g")) == ok);
  BOOST_TEST(!world.value.find_group("g"));
  BOOST_TEST(world.apply(world.value.remove_group("g")) == not_found);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
