// Instances: which are taken, what they agree to, and where they differ.
#include <boost/test/unit_test.hpp>
#include <string>

#include "tests/unit/services/manager/registry/registry_world.hpp"

namespace cenote::manager {

using enum answer_code;
using test::changed;
using test::plain_instance;

namespace {

constexpr std::string_view grouped_instance =
    R"({"instance_group":"g","instance_id":"h","block_size":64,"model_deployment":{"model_name":"m","dtype":"bf16"},
        "location_spec_infos":[{"name":"tp0_F0","size":512},{"name":"tp1_F0","size":512},{"name":"tp0_L1","size":256},
                               {"name":"tp1_L1","size":256}],
        "location_spec_groups":[{"name":"F0L1","spec_names":["tp1_F0","tp0_F0","tp1_L1","tp0_L1"]},
                                {"name":"F0","spec_names":["tp1_F0","tp0_F0"]}]})";

}  // namespace

BOOST_AUTO_TEST_SUITE(instances)

BOOST_AUTO_TEST_CASE(an_instance_has_its_terms) {
  const auto world = test::plain_world();
  const auto entry = world.value.find_instance("i");
  BOOST_REQUIRE(entry);
  const auto& terms = entry->terms;
  BOOST_TEST((terms.number == 1U && terms.group == "g" && terms.block_tokens == 64U));
  BOOST_TEST((terms.all_specs == 3U && terms.common_specs == 3U && terms.default_kind == query_kind::prefix));
  BOOST_TEST((terms.find_spec("tp1") == std::size_t{1}));
  BOOST_TEST(!terms.find_spec("tp2").has_value());
  BOOST_TEST(terms.find_group("F0") == nullptr);
  BOOST_TEST(entry->info.quota_group_name() == "q");
}

BOOST_AUTO_TEST_CASE(spec_groups_are_kept_sorted_by_name_and_spec) {
  auto world = test::plain_world();
  BOOST_TEST(world.add_instance(grouped_instance) == ok);
  const auto entry = world.value.find_instance("h");
  const auto& groups = entry->info.location_spec_groups();
  BOOST_REQUIRE(groups.size() == 2);
  BOOST_TEST((groups[0].name() == "F0" && groups[0].spec_names(0) == "tp0_F0" && groups[0].spec_names(1) == "tp1_F0"));
  BOOST_TEST((groups[1].name() == "F0L1" && groups[1].spec_names(1) == "tp0_L1" && groups[1].spec_names_size() == 4));
  BOOST_TEST((entry->terms.find_group("F0")->specs == 3U && entry->terms.find_group("F0L1")->specs == 15U));
  BOOST_TEST((entry->terms.common_specs == 3U && entry->terms.all_specs == 15U));
}

BOOST_AUTO_TEST_CASE(the_same_registration_again_is_fine_in_any_order_of_groups) {
  auto world = test::plain_world();
  BOOST_TEST(world.add_instance(grouped_instance) == ok);
  BOOST_TEST(
      world.add_instance(changed(grouped_instance, R"(["tp1_F0","tp0_F0"])", R"(["tp0_F0","tp1_F0","tp1_F0"])")) == ok);
  BOOST_TEST(world.changed_rows == 0U);
  BOOST_TEST(world.add_instance(changed(plain_instance, R"("bf16")", R"("bf16","user_data":"other")")) == ok);
  BOOST_TEST(world.changed_rows == 0U);
  BOOST_TEST(world.value.find_instance("i")->info.model_deployment().user_data().empty());
}

BOOST_AUTO_TEST_CASE(another_content_is_a_duplicate_that_names_field_and_values) {
  auto world = test::plain_world();
  struct row {
    const char* part;
    const char* next;
    const char* field;
    const char* stored;
    const char* fresh;
  };
  for (const row& each : {row{":64", ":32", "block_size", "64", "32"},
                          row{"\"m\"", "\"n\"", "model_deployment.model_name", "\"m\"", "\"n\""},
                          row{"\"g\"", "\"other\"", "instance_group", "\"g\"", "\"other\""},
                          row{"256", "128", "location_spec_infos[1].size", "256", "128"},
                          row{R"(,{"name":"tp1","size":256})", "", "location_spec_infos[1]", "tp1", "(none)"},
                          row{":64", R"(:64,"default_query_type":"QT_BATCH_GET")", "default_query_type",
                              "QT_UNSPECIFIED", "QT_BATCH_GET"},
                          row{"\"bf16\"", "\"bf16\",\"tp_size\":4", "model_deployment.tp_size", "0", "4"}}) {
    BOOST_TEST(world.add_instance(changed(plain_instance, each.part, each.next)) == duplicate_entity, each.field);
    const std::string expected = std::string(each.field) + ": ";
    BOOST_TEST((world.notes(expected) && world.notes(each.stored) && world.notes(each.fresh)), world.note);
  }
}

BOOST_AUTO_TEST_CASE(values_that_differ_behind_their_begin_differ) {
  auto world = test::plain_world();
  const std::string begin(300, 'e');
  const auto extra = [&](const std::string& value) {
    return changed(plain_instance, "\"bf16\"", R"("bf16","extra":")" + value + "\"");
  };
  BOOST_TEST(world.add_instance(changed(extra(begin + "1"), "\"i\"", "\"x\"")) == ok);
  BOOST_TEST(world.add_instance(changed(extra(begin + "2"), "\"i\"", "\"x\"")) == duplicate_entity);
}

BOOST_AUTO_TEST_CASE(all_that_can_never_work_is_named_at_once) {
  auto world = test::plain_world();
  BOOST_TEST(world.add_instance(R"({"block_size":0,"default_query_type":9,
      "location_spec_infos":[{"name":"a","size":0},{"name":"a","size":-1},{"name":"","size":1}],
      "location_spec_groups":[{"name":"g","spec_names":["b"]},{"name":"g"}]})") == invalid_argument);
  for (const char* field : {"instance_group: ", "instance_id: ", "block_size: ", "location_spec_infos[0].size: ",
                            "location_spec_infos[1].size: ", "location_spec_infos[1].name: ",
                            "location_spec_infos[2].name: ", "location_spec_groups[0].spec_names: ",
                            "location_spec_groups[1].name: ", "location_spec_groups[1].spec_names: ",
                            "model_deployment.model_name: ", "model_deployment.dtype: ", "default_query_type: "}) {
    BOOST_TEST(world.notes(field), field << " in " << world.note);
  }
  BOOST_TEST(world.add_instance(changed(plain_instance, ",\"dtype\":\"bf16\"", "")) == invalid_argument);
  BOOST_TEST(world.add_instance(R"({"instance_group":"g","instance_id":"x","block_size":1,
      "model_deployment":{"model_name":"m","dtype":"d"}})") == invalid_argument);
}

BOOST_AUTO_TEST_CASE(specs_and_their_sizes_are_bounded) {
  auto world = test::plain_world();
  const auto instance = [](const std::string& id, std::size_t count, std::int64_t bytes) {
    proto::RegisterInstanceRequest request = test::registration(plain_instance);
    request.set_instance_id(id);
    request.clear_location_spec_infos();
    for (std::size_t i = 0; i < count; ++i) {
      auto& spec = *request.add_location_spec_infos();
      spec.set_name("s" + std::to_string(i));
      spec.set_size(bytes);
    }
    return request;
  };
  constexpr std::int64_t most = (std::int64_t{1} << 48) - 1;
  BOOST_TEST(world.apply(world.value.register_instance(instance("a", 65, 1))) == invalid_argument);
  BOOST_TEST(world.apply(world.value.register_instance(instance("a", 1, most + 1))) == invalid_argument);
  BOOST_TEST(world.apply(world.value.register_instance(instance("a", 2, most))) == invalid_argument);
  BOOST_TEST(world.apply(world.value.register_instance(instance("a", 64, std::numeric_limits<std::int64_t>::max()))) ==
             invalid_argument);
  BOOST_TEST(world.apply(world.value.register_instance(instance("a", 64, 1))) == ok);
  BOOST_TEST(world.value.find_instance("a")->terms.all_specs == ~0ULL);
  auto groups = instance("b", 1, most);
  for (int i = 0; i < 65; ++i) {
    auto& group = *groups.add_location_spec_groups();
    group.set_name("g" + std::to_string(i));
    group.add_spec_names("s0");
  }
  BOOST_TEST(world.apply(world.value.register_instance(groups)) == invalid_argument);
}

BOOST_AUTO_TEST_CASE(a_group_is_there_and_has_room) {
  auto world = test::plain_world();
  BOOST_TEST(world.add_instance(changed(changed(plain_instance, "\"i\"", "\"x\""), "\"g\"", "\"nowhere\"")) ==
             not_found);
  BOOST_TEST(world.add_instance(changed(plain_instance, "\"i\"", "\"j\"")) == ok);
  BOOST_TEST(world.add_instance(changed(plain_instance, "\"i\"", "\"k\"")) == reach_max_entity_capacity);
  BOOST_TEST(world.add_instance(plain_instance) == ok);
  BOOST_TEST(world.value.instance_count("g") == 2U);
}

BOOST_AUTO_TEST_CASE(numbers_are_never_used_again) {
  auto world = test::plain_world();
  BOOST_TEST(world.apply(world.value.remove_instance("g", "i")) == ok);
  BOOST_TEST((world.removed_instance == std::uint64_t{1}));
  BOOST_TEST(!world.rows.contains("i/i"));
  world.value = manager_registry::load(world.stored()).value;
  BOOST_TEST(world.add_instance(plain_instance) == ok);
  BOOST_TEST(world.value.find_instance("i")->terms.number == 2U);
}

BOOST_AUTO_TEST_CASE(an_instance_is_removed_from_its_own_group_only) {
  auto world = test::plain_world();
  BOOST_TEST(world.apply(world.value.remove_instance("other", "i")) == instance_not_exist);
  BOOST_TEST(world.apply(world.value.remove_instance("", "j")) == instance_not_exist);
  BOOST_TEST(world.apply(world.value.remove_instance("", "i")) == ok);
}

BOOST_AUTO_TEST_CASE(an_older_value_stays_as_it_was) {
  auto world = test::plain_world();
  const manager_registry before = world.value;
  BOOST_TEST(world.apply(world.value.remove_instance("", "i")) == ok);
  BOOST_TEST(world.add_instance(changed(plain_instance, "\"i\"", "\"j\"")) == ok);
  BOOST_TEST((before.find_instance("i") && !before.find_instance("j")));
  BOOST_TEST((!world.value.find_instance("i") && world.value.find_instance("j")));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
