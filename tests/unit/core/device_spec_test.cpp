#include "core/device_spec.hpp"

#include <boost/test/unit_test.hpp>

namespace cenote {

namespace {

instance_spec spec_of(std::vector<group_spec> groups) {
  instance_spec spec;
  spec.id = "model";
  spec.tokens_per_block = 16;
  spec.groups = std::move(groups);
  return spec;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(device_spec_suite)

BOOST_AUTO_TEST_CASE(one_device_has_one_name_however_it_is_written) {
  BOOST_TEST(parse_device("GPU-12ab")->name == "cuda:GPU-12ab");
  BOOST_TEST(parse_device("cuda:GPU-12ab")->name == "cuda:GPU-12ab");
  BOOST_TEST(parse_device("cuda:01")->name == "cuda:1");
  BOOST_TEST(parse_device("sim:3,fail=2")->name == "sim:3");
  BOOST_TEST((parse_device("cuda:1")->kind == device_kind::cuda));
  BOOST_TEST((parse_device("sim:1")->kind == device_kind::sim));
}

BOOST_AUTO_TEST_CASE(faults_of_a_simulated_device_stand_behind_its_name) {
  const auto found = parse_device("sim:0,fail=2,lose=3,mib=4");
  BOOST_REQUIRE(found.has_value());
  BOOST_TEST(found->fail_work == 2U);
  BOOST_TEST(found->lose_event == 3U);
  BOOST_TEST(found->memory_bytes == std::uint64_t{4} << 20);
}

BOOST_AUTO_TEST_CASE(anything_else_is_no_device) {
  for (const char* text : {"", "gpu", "sim", "sim:", "sim:x", "sim:0,", "sim:0,fail", "sim:0,fail=0", "sim:0,slow=1",
                           "cuda:", "cuda:x", "cuda:0,fail=1", "cuda:gpu-1"}) {
    BOOST_TEST(!parse_device(text).has_value(), text);
  }
}

BOOST_AUTO_TEST_CASE(a_rank_has_its_own_part_of_each_group_and_the_only_one_of_those_that_have_one) {
  const auto whole = spec_of({{"kv", {{"a", 100}, {"b", 200}}}, {"state", {{"all", 7}}}});
  const auto made = instance_on_device({whole, 1}, "sim:0");
  BOOST_REQUIRE(made.has_value());
  BOOST_TEST(made->id == "model@sim:0#1");
  BOOST_TEST(made->instance_group == "model");
  BOOST_TEST((made->groups == std::vector<group_spec>{{"kv", {{"b", 200}}}, {"state", {{"all", 7}}}}));
  BOOST_TEST(instance_on_device({spec_of({{"kv", {{"a", 100}}}}), 5}, "sim:0")->id == "model@sim:0");
}

BOOST_AUTO_TEST_CASE(a_part_that_there_is_not_is_refused_by_the_groups_name) {
  const auto made = instance_on_device({spec_of({{"kv", {{"a", 100}, {"b", 200}}}}), 2}, "sim:0");
  BOOST_REQUIRE(!made.has_value());
  BOOST_TEST(made.error().message() == "group `kv` has 2 parts, there is no part 2");
}

BOOST_AUTO_TEST_CASE(an_id_that_has_no_room_for_the_device_is_refused) {
  auto whole = spec_of({{"kv", {{"a", 100}}}});
  whole.id = std::string(max_name_bytes, 'x');
  BOOST_TEST(!instance_on_device({whole, 0}, "sim:0").has_value());
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
