#include <fmt/format.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>

#include "commands/replay/options.hpp"
#include "commands/replay/trace.hpp"

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

BOOST_AUTO_TEST_CASE(capacities_may_be_bytes) {
  constexpr std::uint64_t block = 256 << 10;
  BOOST_TEST(*parse_capacities("1GiB:4GiB:2x", block) == (counts{4'096, 8'192, 16'384}));
  BOOST_TEST(*parse_capacities("512KiB,1k", block) == (counts{2, 1'000}));
  BOOST_TEST((*parse_tiers("dram=2GiB,nvme=6GiB", block))[1].capacity == 24'576U);
  BOOST_TEST(!parse_capacities("128KiB", block).has_value());
  BOOST_TEST(!parse_capacities("1GiB").has_value());
}

BOOST_AUTO_TEST_CASE(a_wrong_number_of_blocks_is_refused_with_what_is_right_there) {
  BOOST_TEST(parse_capacities("x").error().message().contains("right are 1 to 2147483648"));
  BOOST_TEST(parse_capacities("x", 0, 0).error().message().contains("right are 0 to 2147483648"));
  BOOST_TEST(*parse_capacities("0,5", 0, 0) == (counts{0, 5}));
  BOOST_TEST(parse_capacities("x", 4096).error().message().contains("or bytes as in 2GiB"));
  for (const std::string_view wrong : {"x", "2GiB"}) {
    BOOST_TEST(!parse_capacities(wrong).error().message().contains("or bytes"), wrong);
  }
  BOOST_TEST(parse_capacities("2GiB").error().message().contains("the bytes of a block are not known here"));
}

BOOST_AUTO_TEST_CASE(what_is_said_of_tiers_is_said_of_all_or_by_name) {
  const auto tiers = *parse_tiers("dram=1,nvme=2,remote=3");
  const auto below = std::span(tiers).subspan(1);
  BOOST_TEST((*parse_by_tier("all", below, "--ingest") == std::vector<std::optional<std::string>>{"all", "all"}));
  BOOST_TEST((*parse_by_tier("remote=hot", below, "--ingest") ==
              std::vector<std::optional<std::string>>{std::nullopt, "hot"}));
  BOOST_TEST(
      (*parse_by_tier("", below, "--ingest") == std::vector<std::optional<std::string>>{std::nullopt, std::nullopt}));
  for (const std::string_view wrong : {"dram=all", "nowhere=all", "nvme=all,hot", "=all"}) {
    BOOST_TEST(!parse_by_tier(wrong, below, "--ingest").has_value(), wrong);
  }
}

BOOST_AUTO_TEST_CASE(tiers_are_two_to_four) {
  const auto tiers = parse_tiers("dram=1000,nvme=10k");
  BOOST_REQUIRE(tiers.has_value());
  BOOST_TEST((*tiers)[0].name == "dram");
  BOOST_TEST((*tiers)[1].capacity == 10'000U);
  for (const std::string_view wrong :
       {"", "dram=1", "dram=1,nvme", "=1,nvme=2", "a=1,b=2,c=3,d=4,e=5", "a=1,a=2", "a=0,b=1"}) {
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
      "{\"timestamp\": 1, \"input_length\": \"many\", \"hash_ids\": []}\n"
      "{\"timestamp\": 1, \"input_length\": 600, \"hash_ids\": [1, 2.5]}\r\n"
      "{broken\n"
      "{\"timestamp\": 3000, \"input_length\": 512, \"hash_ids\": [7]}");
  const auto refused = read_trace_file(file.path);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST(refused.error().message().find("7 of 9 lines") != std::string::npos, refused.error().message());
  const auto read = read_trace_file(file.path, {.allow_left_out = true});
  BOOST_REQUIRE(read.has_value());
  BOOST_TEST(read->requests.requests().size() == 2U);
  BOOST_TEST(read->requests.tokens() == 1'112U);
  BOOST_TEST(read->requests.requests()[0].partial);
  BOOST_TEST(read->requests.requests()[0].tenths() == 10U);
  BOOST_TEST(read->lines == 9U);
  BOOST_TEST(read->left_out == 7U);
  BOOST_TEST(
      read->warnings ==
          (std::vector{file.path + ":3: this is no JSON (1 more like it)", file.path + ":4: a JSON object was expected",
                       file.path + ":5: `hash_ids` is missing", file.path + ":6: `timestamp` is no time",
                       file.path + ":7: `input_length` is no number of tokens, 0 to 1000000000",
                       file.path + ":8: `hash_ids` holds 2.5, not a block's id"}),
      boost::test_tools::per_element());
}

namespace {

std::string line_of(const std::string& time, std::uint64_t id = 1) {
  return fmt::format("{{\"timestamp\": {}, \"input_length\": 512, \"hash_ids\": [{}]}}\n", time, id);
}

read_trace read_text(const std::string& text, const trace_reading& reading = {}) {
  const temporary_file file(text);
  auto read = read_trace_file(file.path, reading);
  BOOST_REQUIRE_MESSAGE(read.has_value(), (read ? "" : read.error().message()));
  return std::move(*read);
}

/// The text of the only warning, without the file's name.
std::string warning_of(const read_trace& read) {
  BOOST_REQUIRE_EQUAL(read.warnings.size(), 1U);
  return read.warnings.front().substr(read.warnings.front().find(':') + 1);
}

}  // namespace

BOOST_AUTO_TEST_CASE(times_since_1970_become_times_since_the_first_request) {
  for (const auto& [from, to, unit] : {std::tuple("1712345678", "1712345688", "seconds"),
                                       {"1712345678.25", "1712345688.25", "seconds"},
                                       {"1712345678000", "1712345688000", "milliseconds"},
                                       {"1712345678000000", "1712345688000000", "microseconds"},
                                       {"1712345678000000123", "1712345688000000123", "nanoseconds"}}) {
    const auto read = read_text(line_of(from) + line_of(to));
    BOOST_TEST(read.requests.requests()[0].tenths() == 0U, from);
    BOOST_TEST(read.requests.requests()[1].tenths() == 100U, from);
    BOOST_TEST(warning_of(read).find(unit) != std::string::npos);
  }
}

BOOST_AUTO_TEST_CASE(a_unit_that_was_given_is_taken) {
  const auto read = read_text(line_of("5") + line_of("15"), {.unit = time_unit::seconds});
  BOOST_TEST(read.requests.requests()[1].tenths() == 150U);
  BOOST_TEST(read.warnings.empty());
}

namespace {

/// The remarks on so many requests, each so long behind the one before.
std::vector<std::string> remarks_on(int requests, double distance, const trace_reading& reading = {}) {
  std::string text;
  for (int i = 0; i < requests; ++i) text += line_of(fmt::format("{}", i * distance));
  return read_text(text, reading).warnings;
}

}  // namespace

BOOST_AUTO_TEST_CASE(a_rate_that_looks_like_another_unit_is_doubted_in_short_traces_too) {
  for (const auto& [requests, distance] : {std::pair(40, 0.5), std::pair(40, 1.0), std::pair(40, 12.5),
                                           std::pair(40, 9.0), std::pair(1'200, 0.5), std::pair(1'200, 60.5)}) {
    const auto remarks = remarks_on(requests, distance);
    BOOST_REQUIRE(remarks.size() == 1U);
    BOOST_TEST(remarks[0].contains("if `timestamp` counts seconds, say --time-unit s"), distance);
  }
  const auto thin = remarks_on(40, 1e7);
  BOOST_REQUIRE(thin.size() == 1U);
  BOOST_TEST(thin[0].contains("--time-unit us or ns"));
  for (const auto& [requests, distance] :
       {std::pair(9, 0.5), std::pair(40, 20.0), std::pair(40, 150.5), std::pair(1'200, 2.0), std::pair(40, 0.0)}) {
    BOOST_TEST(remarks_on(requests, distance).empty(), distance);
  }
  BOOST_TEST(remarks_on(40, 0.5, {.unit = time_unit::milliseconds}).empty());
}

BOOST_AUTO_TEST_CASE(a_unit_that_a_members_name_gives_is_not_doubted) {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += fmt::format("{{\"timestamp_ms\": {}, \"input_length\": 512, \"hash_ids\": [{}]}}\n", i, i);
  }
  BOOST_TEST(read_text(text).warnings.empty());
}

BOOST_AUTO_TEST_CASE(a_turn_comes_its_delay_behind_the_one_before) {
  const auto turn = [](std::string_view session, std::string_view time, std::uint64_t id) {
    return fmt::format("{{\"session_id\": \"{}\", {}, \"input_length\": 512, \"hash_ids\": [{}]}}\n", session, time,
                       id);
  };
  const auto read = read_text(turn("a", "\"timestamp\": 1000", 1) + turn("b", "\"timestamp\": 1200", 2) +
                              turn("a", "\"delay\": 500.5", 3) + turn("a", "\"delay\": 500", 4));
  std::vector<std::uint64_t> times;
  for (const auto& each : read.requests.requests()) times.push_back(each.time_ms);
  BOOST_TEST(times == (std::vector<std::uint64_t>{1000, 1200, 1500, 2000}), boost::test_tools::per_element());
  BOOST_TEST(read.warnings.empty());
}

BOOST_AUTO_TEST_CASE(a_trace_without_times_keeps_its_order_and_a_line_without_among_others_is_left_out) {
  const std::string timeless = "{\"input_length\": 512, \"hash_ids\": [9]}\n";
  const auto untimed = read_text(timeless + timeless);
  BOOST_TEST(untimed.requests.requests().size() == 2U);
  BOOST_TEST(untimed.warnings.empty());
  const auto mixed = read_text(line_of("5") + timeless + line_of("7"), {.allow_left_out = true});
  BOOST_TEST(mixed.requests.requests().size() == 2U);
  BOOST_TEST(mixed.left_out == 1U);
  BOOST_TEST(warning_of(mixed) == "2: `timestamp` is missing");
}

BOOST_AUTO_TEST_CASE(the_tokens_of_a_block_are_those_that_the_lines_say_or_that_their_ids_fit) {
  const auto line = [](std::uint64_t tokens, std::string_view more = "") {
    return fmt::format("{{\"timestamp\": 1, \"input_length\": {}, \"hash_ids\": [1, 2, 3, 4, 5]{}}}\n", tokens, more);
  };
  for (const std::uint64_t size : {16, 64, 256, 1024, 2048}) {
    const auto read = read_text(line(size * 5));
    BOOST_TEST(read.requests.block_tokens() == size);
    BOOST_TEST(read.requests.tokens() == size * 5);
    BOOST_TEST(warning_of(read).find(fmt::format("blocks of {} tokens", size)) != std::string::npos);
  }
  const auto usual = read_text(line(5 * 512 - 7));
  BOOST_TEST(usual.requests.block_tokens() == 512U);
  BOOST_TEST(usual.warnings.empty());
  const auto stated = read_text(line(5 * 48, ", \"block_size\": 48"));
  BOOST_TEST(stated.requests.block_tokens() == 48U);
  BOOST_TEST(stated.warnings.empty());
  const auto differing =
      read_text(line(5 * 48, ", \"block_size\": 48") + line(5 * 48, ", \"block_size\": 32"), {.allow_left_out = true});
  BOOST_TEST(differing.left_out == 1U);
  BOOST_TEST(warning_of(differing) == "2: `block_size` is 32, but the blocks of this trace have 48 tokens");
  const auto given = read_text(line(5 * 64), {.block_tokens = 64});
  BOOST_TEST(given.requests.block_tokens() == 64U);
  BOOST_TEST(given.warnings.empty());
}

BOOST_AUTO_TEST_CASE(bad_lines_among_the_first_ones_do_not_decide_on_the_tokens_of_a_block) {
  std::string text = "{\"timestamp\": 1, \"input_length\": 7, \"hash_ids\": [1, 2, 3]}\n";
  for (int i = 0; i < 100; ++i)
    text += fmt::format("{{\"timestamp\": {}, \"input_length\": 150, \"hash_ids\": [1, 2, {}]}}\n", i, 100 + i);
  const auto read = read_text(text, {.full_blocks = true});
  BOOST_TEST(read.requests.block_tokens() == 64U);
  BOOST_TEST(read.left_out == 1U);
  BOOST_TEST(read.requests.requests().size() == 100U);
  BOOST_TEST(read.requests.distinct() == 2U);  // the last block is not full
}

BOOST_AUTO_TEST_CASE(what_a_bad_line_has_is_not_taken_for_all_others) {
  std::string good;
  for (int i = 0; i < 30; ++i) good += line_of(std::to_string(100 * i), 100 + static_cast<std::uint64_t>(i));
  for (const std::string_view bad : {R"({"block_size": 1, "hash_ids": [1]})",
                                     R"({"timestamp": 1, "block_size": 1, "input_length": 1, "hash_ids": [1, 2]})",
                                     R"({"timestamp": 1, "block_size": 1, "input_length": 2, "hash_ids": [3, 3]})",
                                     R"({"chat_id": 1, "hash_ids": [1]})",
                                     R"({"type": "StartWriteCache", "source": "a", "trigger_time_us": 1, "keys": []})",
                                     R"({"turns": [{"timestamp": 1, "input_length": 512, "hash_ids": ["a"]}, 5]})"}) {
    const auto read = read_text(std::string(bad) + "\n" + good, {.format = "auto"});
    BOOST_TEST(read.format == "mooncake", bad);
    BOOST_TEST(read.instances.empty(), bad);
    BOOST_TEST(read.requests.block_tokens() == 512U, bad);
    BOOST_TEST(read.requests.requests().size() == 30U, bad);
    BOOST_TEST(read.left_out == 1U, bad);
    BOOST_TEST(read.warnings.size() == 1U, bad);
  }
}

BOOST_AUTO_TEST_CASE(ids_of_another_form_than_the_first_are_left_out) {
  const std::string text = "{\"timestamp\": 5, \"input_length\": 512, \"hash_ids\": [\"a\"]}\n";
  const auto of_text = read_text(text + line_of("6", 1), {.allow_left_out = true});
  BOOST_TEST(of_text.requests.requests().size() == 1U);
  BOOST_TEST(warning_of(of_text) == "2: `hash_ids` holds numbers, those of earlier lines text");
  const auto of_numbers = read_text(line_of("5", 1) + text, {.allow_left_out = true});
  BOOST_TEST(of_numbers.requests.requests().size() == 1U);
  BOOST_TEST(warning_of(of_numbers) == "2: `hash_ids` holds text, those of earlier lines numbers");
}

BOOST_AUTO_TEST_CASE(a_unit_that_is_likely_wrong_is_said) {
  std::string dense;
  for (int i = 0; i < 4'000; ++i) dense += line_of(std::to_string(i / 4));
  BOOST_TEST(warning_of(read_text(dense)).starts_with("1: 4000 requests in 0.999 s: if"));
  std::string thin;
  for (int i = 0; i < 20; ++i) thin += line_of(std::to_string(i * 4'000'000));
  BOOST_TEST(warning_of(read_text(thin)).starts_with("1: one request in 1.1 hours"));
}

BOOST_AUTO_TEST_CASE(requests_out_of_order_are_put_in_order) {
  const auto read = read_text(line_of("3000", 3) + line_of("1000", 1) + line_of("2000", 2));
  BOOST_TEST(warning_of(read) ==
             "2: time goes back here; the requests are put in the order of their times (1 more like it)");
  BOOST_TEST(read.requests.identities()[0] == 1U);
  BOOST_TEST(read.requests.identities()[2] == 3U);
  BOOST_TEST(read.left_out == 0U);
}

BOOST_AUTO_TEST_CASE(an_outlier_in_time_is_left_out) {
  for (const std::string far : {"99999999999", "4e15", "18446744073709551615"}) {
    std::string text;
    for (int i = 0; i < 40; ++i) text += line_of(i == 20 ? far : std::to_string(i * 1'000));
    const auto read = read_text(text);
    BOOST_TEST(read.left_out == 1U, far);
    BOOST_TEST(read.requests.requests().back().tenths() == 390U);
    BOOST_TEST(warning_of(read) == "21: `timestamp` is far from all others");
  }
  std::string absolute = line_of("0");  // the first one, beside times since 1970
  for (int i = 0; i < 40; ++i) absolute += line_of(std::to_string(1'712'345'678 + i));
  BOOST_TEST(read_text(absolute).requests.requests().back().tenths() == 390U);
}

BOOST_AUTO_TEST_CASE(ids_that_cannot_be_a_prefix_are_left_out) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += line_of("0");
  const auto twice = read_text(text + R"({"timestamp": 0, "input_length": 2000, "hash_ids": [5, 9, 5]})");
  BOOST_TEST(warning_of(twice) == "41: id 5 comes twice, but a block of a prefix comes once in its request");
  const auto many = read_text(text + R"({"timestamp": 0, "input_length": 513, "hash_ids": [5, 6, 7]})");
  BOOST_TEST(
      warning_of(many) ==
      "41: 3 ids for 513 tokens: with a block for each 512 tokens there are 2; --block-tokens gives another number");
  BOOST_TEST(many.left_out == 1U);
}

BOOST_AUTO_TEST_CASE(sums_do_not_wrap) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += line_of("0");
  const auto read = read_text(text + R"({"timestamp": 0, "input_length": 18446744073709551615, "hash_ids": [5]})");
  BOOST_TEST(read.requests.tokens() == 40U * 512U);
  BOOST_TEST(warning_of(read).starts_with("41: `input_length` is no number of tokens"));
  const auto larger = read_text(text + R"({"timestamp": 0, "input_length": 36893488147419103232, "hash_ids": [5]})");
  BOOST_TEST(warning_of(larger) == "41: a number here is none, or too large");
}

BOOST_AUTO_TEST_CASE(a_byte_order_mark_is_no_request) {
  const auto read = read_text("\xef\xbb\xbf" + line_of("0") + line_of("1000"));
  BOOST_TEST(read.requests.requests().size() == 2U);
  BOOST_TEST(read.warnings.empty());
}

BOOST_AUTO_TEST_CASE(a_json_array_is_explained) {
  const temporary_file file("[" + line_of("0") + "]");
  const auto refused = read_trace_file(file.path);
  BOOST_REQUIRE(!refused.has_value());
  BOOST_TEST(refused.error().message().find("jq -c") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(only_the_first_requests_and_their_full_blocks_are_taken) {
  const auto read = read_text(R"({"timestamp": 0, "input_length": 513, "hash_ids": [5, 6]})"
                              "\n" +
                                  line_of("1") + line_of("2"),
                              {.full_blocks = true, .most = 2});
  BOOST_TEST(read.requests.requests().size() == 2U);
  BOOST_TEST(read.requests.stream().size() == 2U);
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
