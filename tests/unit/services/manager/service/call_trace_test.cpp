#include "services/manager/service/call_trace.hpp"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/services/manager/own_folder.hpp"

namespace cenote::manager {

namespace {

namespace meta = ::kv_cache_manager::proto::meta;

std::vector<std::string> lines_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

/// The line from its field `type` on, without the time.
std::string facts_of(const std::string& line) {
  const std::size_t type = line.find(R"("type":)"), time = line.find(R"("trigger_time_us":)");
  BOOST_REQUIRE((type != std::string::npos && time != std::string::npos));
  return line.substr(type, time - type) + line.substr(line.find(',', time) + 1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(manager_call_trace)

BOOST_AUTO_TEST_CASE(a_session_is_three_lines_in_the_form_of_a_publishers_log) {
  const test::own_folder folder;
  const auto path = folder.path() / "trace.jsonl";
  {
    auto trace = call_trace::open(path.string());
    BOOST_REQUIRE(trace.has_value());
    const std::vector<cache_key> keys{{.low = 1}, {.low = ~0ULL}, {.low = 6, .high = 3}};
    (*trace)->note_lookup("an \"instance\"", query_kind::window, 2, keys);
    (*trace)->start_of("i", std::span(keys).first(1))("session-1");
    meta::FinishWriteCacheRequest finish;
    finish.set_instance_id("i");
    finish.set_write_session_id("session-1");
    finish.mutable_success_blocks()->mutable_bool_masks()->add_values(true);
    finish.mutable_success_blocks()->mutable_bool_masks()->add_values(false);
    (*trace)->finish_of(finish)();
    finish.mutable_success_blocks()->set_offset(7);
    (*trace)->finish_of(finish)();
  }
  const auto lines = lines_of(path);
  BOOST_REQUIRE(lines.size() == 4U);
  BOOST_TEST(lines[0].starts_with(R"({"id":"1","source":"an \"instance\"","component":"cache_manager",)"));
  BOOST_TEST(facts_of(lines[0]) ==
             R"("type":"GetCacheLocation","query_type":"reverse_roll_sw_match","keys":[1,-1,5],"tokens":[],)"
             R"("block_mask":0,"sw_size":2,"location_spec_names":[]})");
  BOOST_TEST(facts_of(lines[1]) ==
             R"("type":"StartWriteCache","keys":[1],"tokens":[],"write_session_id":"session-1"})");
  BOOST_TEST(facts_of(lines[2]) ==
             R"("type":"FinishWriteCache","write_session_id":"session-1","success_block":[true,false]})");
  BOOST_TEST(facts_of(lines[3]) == R"("type":"FinishWriteCache","write_session_id":"session-1","success_block":7})");
}

BOOST_AUTO_TEST_CASE(a_file_that_is_full_makes_room_for_the_next_and_no_more_than_four_stay) {
  const test::own_folder folder;
  const auto path = folder.path() / "trace.jsonl";
  for (int i = 0; i < 8; ++i) {  // each is written when its trace ends
    auto trace = call_trace::open(path.string(), 200);
    BOOST_REQUIRE(trace.has_value());
    (*trace)->note_lookup("instance" + std::to_string(i), query_kind::prefix, 0, {});
  }
  for (int i = 0; i < 4; ++i) {
    const auto lines = lines_of(path.string() + (i == 0 ? "" : "." + std::to_string(i)));
    BOOST_REQUIRE(lines.size() == 1U);
    BOOST_TEST(lines[0].find("instance" + std::to_string(7 - i)) != std::string::npos);
  }
  BOOST_TEST(!std::filesystem::exists(path.string() + ".4"));
}

BOOST_AUTO_TEST_CASE(what_cannot_be_written_is_counted) {
  auto trace = call_trace::open("/dev/full");
  BOOST_REQUIRE(trace.has_value());
  (*trace)->note_lookup("i", query_kind::prefix, 0, {});
  while ((*trace)->dropped() == 0) std::this_thread::yield();
  BOOST_TEST((*trace)->dropped() == 1U);
}

BOOST_AUTO_TEST_CASE(a_folder_that_is_not_there_is_an_error) {
  const auto trace = call_trace::open("/nowhere/trace");
  BOOST_REQUIRE(!trace.has_value());
  BOOST_TEST(trace.error().message().find("/nowhere/trace") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
