#include "commands/replay/streamed_trace.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "simulation/formats/ctrace.hpp"
#include "simulation/trace.hpp"
#include "tests/support/folders.hpp"

namespace cenote::replay {

namespace {

using chains = std::vector<std::vector<std::uint64_t>>;

/// A file that goes with the test.
class trace_file {
 public:
  explicit trace_file(std::string_view content) {
    std::ofstream(path, std::ios::binary).write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  ~trace_file() { std::filesystem::remove(path); }
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;

  std::string path = (std::filesystem::temp_directory_path() / fmt::format("cenote-streamed-{}", ::getpid())).string();
};

/// Keys as numbers from 0 as they first come, so that those of two readers can be compared.
chains numbered(const chains& all) {
  std::map<std::uint64_t, std::uint64_t> numbers;
  chains made = all;
  for (auto& chain : made) {
    for (std::uint64_t& key : chain) key = numbers.try_emplace(key, numbers.size()).first->second;
  }
  return made;
}

struct streamed {
  result<streamed_trace> outcome;
  chains all;
  std::vector<std::uint64_t> times_ms;
};

streamed stream(const std::string& path, const trace_reading& reading = {.format = "auto", .full_blocks = true}) {
  streamed taken;
  taken.outcome = stream_trace_file(path, reading, [&](std::span<const std::uint64_t> chain, std::uint64_t time_ms) {
    taken.all.emplace_back(chain.begin(), chain.end());
    taken.times_ms.push_back(time_ms);
  });
  return taken;
}

std::string refusal_of(const std::string& content) {
  const trace_file file(content);
  const auto taken = stream(file.path);
  return taken.outcome ? "" : taken.outcome.error().message();
}

/// Both readers of a file give the same requests.
void check_same(const std::string& path) {
  const auto whole = read_trace_file(path, {.format = "auto", .full_blocks = true});
  BOOST_REQUIRE_MESSAGE(whole, (whole ? "" : whole.error().message()));
  const auto taken = stream(path);
  BOOST_REQUIRE_MESSAGE(taken.outcome, (taken.outcome ? "" : taken.outcome.error().message()));
  chains expected;
  for (const auto& each : whole->requests.requests()) {
    const auto blocks = whole->requests.blocks(each);
    expected.emplace_back(blocks.begin(), blocks.end());
  }
  BOOST_TEST((numbered(taken.all) == numbered(expected)));
  const auto requests = whole->requests.requests();
  std::vector<std::uint64_t> times_ms;
  for (const auto& each : requests) times_ms.push_back(each.time_ms);
  BOOST_TEST(taken.times_ms == times_ms, boost::test_tools::per_element());
  BOOST_TEST(taken.outcome->format == whole->format);
  BOOST_TEST(taken.outcome->block_tokens == whole->requests.block_tokens());
  BOOST_TEST(taken.outcome->requests == whole->requests.requests().size());
  BOOST_TEST(taken.outcome->tokens == whole->requests.tokens());
  BOOST_TEST(taken.outcome->blocks == whole->requests.stream().size());
  BOOST_TEST((taken.outcome->lines == whole->lines && taken.outcome->left_out == whole->left_out));
  BOOST_TEST(taken.outcome->instances == std::max<std::size_t>(1, whole->instances.size()));
}

std::string line(int time, std::string_view ids, int tokens) {
  return fmt::format(R"({{"timestamp": {}, "input_length": {}, "hash_ids": [{}]}})"
                     "\n",
                     time, tokens, ids);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(streamed_traces)

BOOST_AUTO_TEST_CASE(requests_are_those_of_the_whole_file_in_each_format) {
  const auto folder = testing::source_folder() / "tests/data/optimizer";
  for (const std::string_view name : {"mooncake", "bailian", "tair-schema"}) {
    BOOST_TEST_CONTEXT(name) {
      check_same((folder / fmt::format("{}.jsonl", name)).string());
    }
  }
}

BOOST_AUTO_TEST_CASE(requests_of_a_ctrace_are_those_of_the_whole_file) {
  const auto log = read_trace_file((testing::source_folder() / "tests/data/optimizer/tair-schema.jsonl").string(),
                                   {.format = "auto"});
  BOOST_REQUIRE(log.has_value());
  const auto bytes = formats::ctrace::encode(log->requests, {.lines = 9, .left_out = 1, .instances = log->instances});
  BOOST_REQUIRE(bytes.has_value());
  const trace_file file({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  check_same(file.path);
  const auto other = stream(file.path, {.format = "auto", .block_tokens = 7});
  BOOST_TEST((!other.outcome && other.outcome.error().code() == error_code::invalid_argument));
}

BOOST_AUTO_TEST_CASE(bad_lines_are_left_out_and_counted_and_too_many_are_an_error) {
  std::string text;
  for (int i = 0; i < 200; ++i) text += i % 20 == 7 ? "{no\n" : line(100 * i, fmt::format("1,{}", i + 2), 1024);
  const trace_file file(text);
  check_same(file.path);
  const auto taken = stream(file.path);
  BOOST_TEST(taken.outcome->left_out == 10U);
  BOOST_TEST(taken.outcome->warnings.size() == 1U);
  BOOST_TEST(refusal_of("{no\n" + line(1, "1", 512)).find("make no sense") != std::string::npos);
  BOOST_TEST(refusal_of("").find("it is empty") != std::string::npos);
  BOOST_TEST(refusal_of("[1]").find("JSON array") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(time_that_goes_back_is_said_and_the_lines_keep_their_order) {
  const trace_file file(line(5, "1", 512) + line(3, "2", 512) + line(4, "1", 512));
  const auto taken = stream(file.path);
  BOOST_REQUIRE(taken.outcome.has_value());
  BOOST_TEST((numbered(taken.all) == chains{{0}, {1}, {0}}));
  BOOST_REQUIRE(taken.outcome->warnings.size() == 1U);
  BOOST_TEST(taken.outcome->warnings.front().find("time goes back here") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(lines_without_a_time_among_others_are_taken_and_named) {
  const std::string timeless = "{\"input_length\": 512, \"hash_ids\": [9]}\n";
  const trace_file alike(timeless + timeless);
  BOOST_TEST(stream(alike.path).outcome->warnings.empty());
  for (const std::string& text : {line(5, "1", 512) + timeless, timeless + line(5, "1", 512)}) {
    const trace_file file(text);
    const auto taken = stream(file.path);
    BOOST_REQUIRE(taken.outcome.has_value());
    BOOST_TEST(taken.all.size() == 2U);
    BOOST_REQUIRE(taken.outcome->warnings.size() == 1U);
    BOOST_TEST(taken.outcome->warnings.front().find("`timestamp` is missing, though") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_rate_that_looks_like_another_unit_is_doubted_as_in_the_whole_file) {
  for (const auto& [begin, distance] : {std::pair(0, 1), std::pair(5'000, 9), std::pair(0, 20), std::pair(0, 0)}) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += line(begin + i * distance, std::to_string(i + 1), 512);
    const trace_file file(text);
    const auto whole = read_trace_file(file.path, {.format = "auto"});
    BOOST_TEST(stream(file.path).outcome->warnings == whole->warnings, boost::test_tools::per_element());
    BOOST_TEST(whole->warnings.size() == (distance == 1 || distance == 9 ? 1U : 0U), distance);
    BOOST_TEST(stream(file.path, {.format = "auto", .unit = time_unit::seconds}).outcome->warnings.empty());
  }
}

BOOST_AUTO_TEST_CASE(what_bad_lines_and_those_of_another_form_have_is_judged_as_in_the_whole_file) {
  std::string text = "{\"block_size\": 1, \"hash_ids\": [1]}\n";
  for (int i = 0; i < 30; ++i) text += line(i, std::to_string(i + 1), 512);
  check_same(trace_file(text + "{\"timestamp\": 31, \"input_length\": 512, \"hash_ids\": [\"a\"]}\n").path);
}

BOOST_AUTO_TEST_CASE(what_has_another_order_than_its_lines_is_refused) {
  const std::string turns = R"({"session_id": 1, "turns": [{"timestamp": 1, "input_length": 512, "hash_ids": [1]},)"
                            R"( {"timestamp": 9, "input_length": 512, "hash_ids": [2]}]})"
                            "\n";
  const std::string delay = line(1, "1", 512) +
                            R"({"session_id": 1, "delay": 10, "input_length": 512, "hash_ids": [1]})"
                            "\n";
  for (const std::string& each : {turns, delay}) {
    BOOST_TEST(refusal_of(each).find("`cenote trace convert` puts them in order") != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(reads_and_writes_that_lie_apart_are_refused) {
  const auto log = testing::source_folder() / "tests/data/optimizer/tair-log.jsonl";
  const auto taken = stream(log.string());
  BOOST_REQUIRE(!taken.outcome.has_value());
  BOOST_TEST((taken.outcome.error().code() == error_code::unsupported));
  const auto whole = read_trace_file(log.string(), {.format = "auto"});
  const auto bytes = formats::ctrace::encode(whole->requests, {});
  const trace_file file({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  BOOST_TEST(stream(file.path).outcome.has_value() == whole->requests.stores_all());
}

BOOST_AUTO_TEST_CASE(a_line_without_an_end_takes_no_more_memory_than_a_line_may) {
  const trace_file file("");
  std::filesystem::resize_file(file.path, std::uintmax_t{1} << 30);
  const auto taken = stream(file.path);
  BOOST_REQUIRE(!taken.outcome.has_value());
  BOOST_TEST((taken.outcome.error().code() == error_code::limit_exceeded));
  BOOST_TEST(taken.outcome.error().message().find(":1: the line has over 67108864 bytes") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_log_larger_than_memory_is_refused_after_its_first_lines) {
  std::string text;
  for (int i = 0; i < 80; ++i) text += line(i, fmt::format("1,2,3,4,{}", i + 5), 2560);
  const trace_file file(text);
  std::filesystem::resize_file(file.path, std::uintmax_t{4} << 40);
  const auto whole = read_trace_file(file.path, {.format = "auto"});
  BOOST_REQUIRE(!whole.has_value());
  BOOST_TEST((whole.error().code() == error_code::limit_exceeded));
  BOOST_TEST(whole.error().message().find("by its first lines") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_file_that_is_not_there_and_one_of_another_format_are_refused) {
  BOOST_TEST((stream("/nowhere").outcome.error().code() == error_code::system));
  const trace_file file(line(1, "1", 512));
  BOOST_TEST((stream(file.path, {.format = "cenote"}).outcome.error().code() == error_code::malformed));
  BOOST_TEST((stream(file.path, {.format = "x"}).outcome.error().code() == error_code::invalid_argument));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::replay
