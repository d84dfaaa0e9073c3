// Answers in both forms, and bodies that are no requests.
#include "services/manager/service/call_answer.hpp"

#include <boost/test/unit_test.hpp>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "transport/manager/proto/meta.pb.h"

namespace cenote::manager {

namespace {

namespace meta = ::kv_cache_manager::proto::meta;

std::string text_of(const answer_writer& answer, answer_form form) {
  std::string out;
  answer(form, out);
  return out;
}

template <class Response>
Response parsed(const std::string& bytes) {
  Response response;
  BOOST_TEST_REQUIRE(response.ParseFromString(bytes));
  return response;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(answers_of_calls)

BOOST_AUTO_TEST_CASE(names_of_requests_are_sixteen_digits_and_never_the_same) {
  std::mutex mutex;
  std::set<std::string> names;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int count = 0; count < 500; ++count) {
        std::string name = new_request_id();
        const std::lock_guard lock(mutex);
        names.insert(std::move(name));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  BOOST_TEST(names.size() == 2'000U);
  for (const std::string& name : names) {
    BOOST_TEST(name.size() == 16U);
    BOOST_TEST(name.find_first_not_of("0123456789abcdef") == std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_refusal_has_its_code_and_message_in_both_forms) {
  const auto answer = refusal_answer<meta::GetCacheLocationLenResponse>(
      {.code = answer_code::instance_not_exist, .message = "there is no \"i\""});
  const auto response = parsed<meta::GetCacheLocationLenResponse>(text_of(answer, answer_form::wire));
  BOOST_TEST(static_cast<int>(response.header().status().code()) == static_cast<int>(answer_code::instance_not_exist));
  BOOST_TEST(response.header().status().message() == "there is no \"i\"");
  BOOST_TEST(response.header().request_id().size() == 16U);
  const std::string json = text_of(answer, answer_form::json);
  BOOST_TEST(json.starts_with(R"({"header":{"status":{"code":"INSTANCE_NOT_EXIST","message":"there is no \"i\""})"));
}

BOOST_AUTO_TEST_CASE(a_response_is_ok_and_the_same_in_both_forms) {
  meta::GetCacheLocationLenResponse content;
  content.set_cache_location_len(7);
  const auto answer = response_answer(content, "a note");
  const auto wire = parsed<meta::GetCacheLocationLenResponse>(text_of(answer, answer_form::wire));
  meta::GetCacheLocationLenResponse json;
  BOOST_TEST_REQUIRE(read_json(text_of(answer, answer_form::json), json).has_value());
  BOOST_TEST(wire.SerializeAsString() == json.SerializeAsString());
  BOOST_TEST(wire.cache_location_len() == 7);
  BOOST_TEST(static_cast<int>(wire.header().status().code()) == static_cast<int>(answer_code::ok));
  BOOST_TEST(wire.header().status().message() == "a note");
}

BOOST_AUTO_TEST_CASE(a_body_that_is_no_request_is_refused_and_not_used) {
  struct body_row {
    answer_form form = answer_form::wire;
    std::string body{};
    json_fault fault = json_fault::no_object;
  };
  for (const body_row& row : {body_row{.form = answer_form::wire, .body = "\xff\xff\xff"},
                              body_row{.form = answer_form::wire,
                              .body = std::string("\x12\x7f"
                                                  "x",
                                                  3)},
                              body_row{.form = answer_form::json, .body = "", .fault = json_fault::no_object},
                              body_row{.form = answer_form::json, .body = "null", .fault = json_fault::no_object},
                              body_row{.form = answer_form::json, .body = "[]", .fault = json_fault::no_object},
                              body_row{.form = answer_form::json, .body = "{", .fault = json_fault::malformed}}) {
    const auto read = with_request<::kv_cache_manager::proto::GetInstanceInfoRequest>(
        {.form = row.form, .text = row.body},
        [](const ::kv_cache_manager::proto::GetInstanceInfoRequest&) { BOOST_ERROR("it was used"); });
    BOOST_TEST_REQUIRE(!read.has_value(), row.body);
    BOOST_TEST((read.error().fault == row.fault), row.body);
    BOOST_TEST((read.error().cause.code == answer_code::invalid_argument), row.body);
    BOOST_TEST(!read.error().cause.message.empty(), row.body);
  }
}

BOOST_AUTO_TEST_CASE(a_request_is_read_in_both_forms) {
  ::kv_cache_manager::proto::GetInstanceInfoRequest request;
  request.set_instance_id("i");
  const std::string bytes = request.SerializeAsString();
  std::vector<std::string> ids;
  const auto note = [&](const ::kv_cache_manager::proto::GetInstanceInfoRequest& read) {
    ids.push_back(read.instance_id());
  };
  BOOST_TEST(
      with_request<::kv_cache_manager::proto::GetInstanceInfoRequest>({.form = answer_form::wire, .text = bytes}, note)
          .has_value());
  BOOST_TEST(with_request<::kv_cache_manager::proto::GetInstanceInfoRequest>(
                 {.form = answer_form::json, .text = R"({"instanceId":"j"})"}, note)
                 .has_value());
  std::shared_ptr<const ::kv_cache_manager::proto::GetInstanceInfoRequest> kept;
  BOOST_TEST(
      with_shared_request<::kv_cache_manager::proto::GetInstanceInfoRequest>(
          {.form = answer_form::json, .text = R"({"instance_id":"k"})"}, [&](auto shared) { kept = std::move(shared); })
          .has_value());
  BOOST_TEST(ids == (std::vector<std::string>{"i", "j"}), boost::test_tools::per_element());
  BOOST_TEST_REQUIRE(kept != nullptr);
  BOOST_TEST(kept->instance_id() == "k");
}

BOOST_AUTO_TEST_CASE(the_name_that_a_client_has_for_its_request_is_found) {
  using request_type = ::kv_cache_manager::proto::GetInstanceInfoRequest;
  request_type request;
  request.set_trace_id("t1");
  const std::string bytes = request.SerializeAsString();
  std::string trace_id;
  const auto ignore = [](const request_type&) {};
  BOOST_TEST(with_request<request_type>({.form = answer_form::wire, .text = bytes, .trace_id = &trace_id}, ignore)
                 .has_value());
  BOOST_TEST(trace_id == "t1");
  // Other fields of a wrong type, and those of another request, do not hide it.
  const std::string text = R"({"instance_id":[7],"traceId":"t2","block_keys":"x"})";
  const call_body body{.form = answer_form::json, .text = text, .trace_id = &trace_id};
  BOOST_TEST(!with_request<request_type>(body, ignore).has_value());
  find_trace_id(body);
  BOOST_TEST(trace_id == "t2");
  for (const char* bad : {"{", "", R"({"trace_id":7})"}) find_trace_id({.text = bad, .trace_id = &trace_id});
  BOOST_TEST(trace_id == "t2");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
