// The JSON form of messages: texts that are taken, texts that are refused, and what is written.
#include "transport/manager/message_json.hpp"

#include <boost/test/unit_test.hpp>
#include <random>
#include <string>

#include "tests/support/manager_texts.hpp"
#include "transport/manager/proto/admin.pb.h"
#include "transport/manager/proto/meta.pb.h"

namespace cenote::manager {

namespace {

namespace proto = ::kv_cache_manager::proto;

// The kind of the fault of a text; -1: it is taken.
int fault_of(std::string_view text) {
  proto::meta::GetCacheLocationRequest request;
  const auto outcome = read_json(text, request);
  if (outcome) return -1;
  BOOST_TEST((outcome.error().cause.code == answer_code::invalid_argument), text);
  BOOST_TEST(outcome.error().cause.message.starts_with("body: "), text);
  BOOST_TEST(request.instance_id().empty(), text);
  return static_cast<int>(outcome.error().fault);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(message_texts)

BOOST_AUTO_TEST_CASE(texts_of_a_request_are_taken_in_all_forms) {
  for (const std::string_view text : test::good_locate_texts) {
    proto::meta::GetCacheLocationRequest request;
    BOOST_TEST_REQUIRE(read_json(text, request).has_value(), text);
    BOOST_TEST(request.instance_id() == "i", text);
    BOOST_TEST_REQUIRE(request.block_keys_size() == 2, text);
    BOOST_TEST(request.block_keys(0) == 1, text);
    BOOST_TEST(request.block_keys(1) == -2, text);
    BOOST_TEST(!request.has_block_mask(), text);
    BOOST_TEST(request.query_type() == 0, text);
  }
}

BOOST_AUTO_TEST_CASE(texts_that_are_no_json_or_have_wrong_types_are_malformed) {
  for (const std::string_view text : test::malformed_locate_texts) {
    BOOST_TEST(fault_of(text) == static_cast<int>(json_fault::malformed), text);
  }
}

BOOST_AUTO_TEST_CASE(texts_without_an_object_are_no_requests) {
  for (const std::string_view text : test::objectless_texts) {
    BOOST_TEST(fault_of(text) == static_cast<int>(json_fault::no_object), text);
  }
}

BOOST_AUTO_TEST_CASE(a_refusal_names_the_field) {
  proto::meta::GetCacheLocationRequest request;
  const auto outcome = read_json(R"({"instance_id":"i","sw_size":"two"})", request);
  BOOST_REQUIRE(!outcome.has_value());
  BOOST_TEST(outcome.error().cause.message.find("sw_size") != std::string::npos, outcome.error().cause.message);
}

BOOST_AUTO_TEST_CASE(enumerators_are_read_by_name_and_number) {
  proto::meta::GetCacheLocationRequest request;
  BOOST_REQUIRE(read_json(R"({"query_type":"QT_REVERSE_ROLL_SW_MATCH"})", request).has_value());
  BOOST_TEST(request.query_type() == proto::QT_REVERSE_ROLL_SW_MATCH);
  BOOST_REQUIRE(read_json(R"({"queryType":2})", request).has_value());
  BOOST_TEST(request.query_type() == proto::QT_PREFIX_MATCH);
  BOOST_REQUIRE(read_json(R"({"query_type":77})", request).has_value());
  BOOST_TEST(static_cast<int>(request.query_type()) == 77);
}

BOOST_AUTO_TEST_CASE(a_name_of_no_enumerator_is_refused_with_its_place) {
  for (const std::string_view text :
       {R"({"instance_group":{"quota":{"quota_config":[{},{"storageType":"ST_NONE"}]}}})",
        R"({"instanceGroup":{"quota":{"quotaConfig":[{},{"storage_type":"st_nfs"}]}}})"}) {
    proto::admin::CreateInstanceGroupRequest request;
    const auto outcome = read_json(text, request);
    BOOST_REQUIRE(!outcome.has_value());
    BOOST_TEST(outcome.error().cause.message.find("instance_group.quota.quota_config[1].storage_type") !=
               std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(masks_bytes_and_wrapped_numbers_are_read) {
  proto::meta::GetCacheLocationRequest request;
  BOOST_REQUIRE(
      read_json(R"({"block_mask":{"bool_masks":{"values":[true,false]}},"byte_keys":["AAECAw=="]})", request));
  BOOST_TEST(request.block_mask().bool_masks().values_size() == 2);
  BOOST_TEST(request.byte_keys(0) == std::string("\0\1\2\3", 4));
  BOOST_TEST(fault_of(R"({"block_mask":{"offset":1,"bool_masks":{"values":[true]}}})") ==
             static_cast<int>(json_fault::malformed));
  proto::admin::MetaIndexerConfig config;
  BOOST_REQUIRE(read_json(R"({"persist_metadata_interval_time_ms":"5"})", config));
  BOOST_TEST(config.persist_metadata_interval_time_ms().value() == 5);
}

BOOST_AUTO_TEST_CASE(depth_is_bounded) {
  const auto nested = [](std::size_t depth) {
    return R"({"x":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
  };
  BOOST_TEST(fault_of(nested(deepest_json / 2)) == -1);
  BOOST_TEST(fault_of(nested(deepest_json + 1)) == static_cast<int>(json_fault::malformed));
  BOOST_TEST(fault_of(nested(100'000)) == static_cast<int>(json_fault::malformed));
}

BOOST_AUTO_TEST_CASE(size_is_bounded) {
  BOOST_TEST(fault_of("{}" + std::string(longest_json - 2, ' ')) == -1);
  BOOST_TEST(fault_of("{}" + std::string(longest_json - 1, ' ')) == static_cast<int>(json_fault::malformed));
}

BOOST_AUTO_TEST_CASE(a_message_is_read_anew_and_not_added_to) {
  proto::meta::GetCacheLocationRequest request;
  request.add_block_keys(9);
  request.set_sw_size(3);
  BOOST_REQUIRE(read_json(R"({"block_keys":[1]})", request).has_value());
  BOOST_TEST(request.block_keys_size() == 1);
  BOOST_TEST(request.sw_size() == 0);
}

BOOST_AUTO_TEST_CASE(all_fields_are_written_with_their_names_defaults_included) {
  proto::meta::StartWriteCacheResponse answer;
  answer.mutable_header()->mutable_status()->set_code(proto::INVALID_ARGUMENT);
  auto& location = *answer.add_locations();
  location.set_type(proto::ST_NFS);
  location.set_create_time(1'700'000'000'000);
  location.add_location_specs()->set_uri("file://n/a?blkid=0&size=1");
  std::string text = "x";
  write_json(answer, text);
  BOOST_TEST(text ==
             R"(x{"header":{"status":{"code":"INVALID_ARGUMENT","message":""},"request_id":"","tracer_result":"",)"
             R"("leader":""},"write_session_id":"","locations":[{"type":"ST_NFS","spec_size":0,"location_specs":)"
             R"([{"name":"","uri":"file://n/a?blkid=0&size=1","node_id":"","checksum":"0"}],"id":"","status":"",)"
             R"("create_time":"1700000000000"}]})");
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read_back) {
  proto::admin::InstanceGroup group;
  group.set_name("g \"quoted\" \u00e4");
  group.add_storage_candidates("s1");
  group.mutable_quota()->set_capacity(-5);
  group.mutable_cache_config()->mutable_reclaim_strategy()->mutable_trigger_strategy()->set_used_percentage(0.1);
  group.mutable_cache_config()->mutable_reclaim_strategy()->set_instance_reclaim_budget_policy(
      proto::admin::USAGE_PROPORTIONAL);
  std::string text;
  write_json(group, text);
  proto::admin::InstanceGroup copy;
  BOOST_REQUIRE(read_json(text, copy).has_value());
  BOOST_TEST(copy.SerializeAsString() == group.SerializeAsString());
}

BOOST_AUTO_TEST_CASE(random_texts_are_taken_or_refused) {
  constexpr std::string_view letters = "{}[]\":,.-+e0123456789 truefalsnu\\instance_idblock_keys\xc3\xa4\xff\x01";
  std::mt19937_64 random(11);
  std::size_t taken = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string text(test::good_locate_texts[random() % test::good_locate_texts.size()]);
    for (std::size_t i = random() % 4; i > 0; --i) text[random() % text.size()] = letters[random() % letters.size()];
    taken += fault_of(text) == -1 ? 1U : 0U;
  }
  BOOST_TEST(taken > 1000U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
