#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>

#include "commands/replay_options.hpp"
#include "commands/replay_trace.hpp"

namespace cenote {

namespace {

using counts = std::vector<std::uint32_t>;

/// A file that goes with the test.
struct temporary_file {
  std::string path =
      (std::filesystem::temp_directory_path() / std::filesystem::path("cenote-replay-test.jsonl")).string();

  explicit temporary_file(std::string_view content) { std::ofstream(path) << content; }
  ~temporary_file() { std::filesystem::remove(path); }
  temporary_file(const temporary_file&) = delete;
  temporary_file& operator=(const temporary_file&) = delete;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(replay)

BOOST_AUTO_TEST_CASE(capacities_are_a_list_or_a_sweep) {
  BOOST_TEST(*parse_capacities("1k:256k:2x") ==
             (counts{1'000, 2'000, 4'000, 8'000, 16'000, 32'000, 64'000, 128'000, 256'000}));
  BOOST_TEST(*parse_capacities("1k:3k:1k") == (counts{1'000, 2'000, 3'000}));
  BOOST_TEST(*parse_capacities("1:4:1.5x") == (counts{1, 2, 3, 4}));
  BOOST_TEST(*parse_capacities("500,2k,1M") == (counts{500, 2'000, 1'000'000}));
  for (const std::string_view wrong : {"", "0", "1k:", "1k:2k", "2k:1k:2x", "1k:2k:1x", "1k:2k:x", "1k,", "4x", "-1",
                                       "1K", "1:1000000:1", "3000000000", "99999999999999999999"}) {
    BOOST_TEST(!parse_capacities(wrong).has_value(), wrong);
  }
}

BOOST_AUTO_TEST_CASE(tiers_are_two) {
  const auto tiers = parse_tiers("dram=1000,nvme=10k");
  BOOST_REQUIRE(tiers.has_value());
  BOOST_TEST((*tiers)[0].name == "dram");
  BOOST_TEST((*tiers)[1].capacity == 10'000U);
  for (const std::string_view wrong : {"", "dram=1", "dram=1,nvme", "=1,nvme=2", "a=1,b=2,c=3", "a=1,a=2", "a=0,b=1"}) {
    BOOST_TEST(!parse_tiers(wrong).has_value(), wrong);
  }
}

BOOST_AUTO_TEST_CASE(a_bad_line_is_named_and_left_out) {
  const temporary_file file(
      "{\"timestamp\": 1000.5, \"input_length\": 600, \"output_length\": 3, \"hash_ids\": [7, 9]}\n"
      "\n"
      "{\"timestamp\": 2000, \"input_length\": 600\n"
      "[1, 2]\n"
      "{\"timestamp\": 2000, \"input_length\": 600}\n"
      "{\"timestamp\": -1, \"input_length\": 600, \"hash_ids\": []}\n"
      "{\"timestamp\": 1, \"input_length\": \"600\", \"hash_ids\": []}\n"
      "{\"timestamp\": 1, \"input_length\": 600, \"hash_ids\": [1, -2]}\r\n"
      "{\"timestamp\": 3000, \"input_length\": 512, \"hash_ids\": [7]}");
  const auto read = read_trace_file(file.path);
  BOOST_REQUIRE(read.has_value());
  BOOST_TEST(read->requests.requests().size() == 2U);
  BOOST_TEST(read->requests.tokens() == 1'112U);
  BOOST_TEST(read->requests.requests()[0].partial);
  BOOST_TEST(read->requests.requests()[0].time == 10U);
  BOOST_TEST(read->bad_lines == 6U);
  BOOST_REQUIRE(read->complaints.size() == 6U);
  BOOST_TEST(read->complaints[0] == file.path + ":3: this is no JSON");
  BOOST_TEST(read->complaints[2] == file.path + ":5: `hash_ids` is missing");
  BOOST_TEST(read->complaints[5] == file.path + ":8: `hash_ids` holds -2, not a block's id");
}

BOOST_AUTO_TEST_CASE(a_file_without_requests_is_refused) {
  BOOST_TEST(!read_trace_file("/nonexistent/trace.jsonl").has_value());
  BOOST_TEST(!read_trace_file("/").has_value());
  const temporary_file file("nothing\n");
  const auto refused = read_trace_file(file.path);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST(refused.error().message().find(":1: this is no JSON") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
