#include "commands/replay/line.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

namespace cenote {

namespace {

using ids = huge_vector<std::uint64_t>;

/// Bytes from memory, some at a time.
class pieces final : public byte_source {
 public:
  pieces(std::string text, std::size_t size) : text_(std::move(text)), size_(size) {}

  result<std::size_t> read(std::span<char> into) override {
    BOOST_REQUIRE(!into.empty());
    const std::size_t count = text_.copy(into.data(), std::min(into.size(), size_), at_);
    at_ += count;
    return count;
  }

 private:
  std::string text_;
  std::size_t size_;
  std::size_t at_ = 0;
};

std::vector<std::string> lines_of(const std::string& text, std::size_t piece) {
  pieces from(text, piece);
  line_reader reader(from);
  std::vector<std::string> lines;
  while (true) {
    const auto line = reader.next();
    BOOST_REQUIRE(line.has_value());
    if (!*line) return lines;
    lines.emplace_back(**line);
  }
}

struct parsed {
  std::optional<usual_line> line;
  ids list;
};

parsed parse(const std::string& text, std::string_view behind = "0000000000000000") {
  const std::string padded = text + std::string(behind);
  parsed out;
  out.line = parse_usual_line(std::string_view(padded).substr(0, text.size()), out.list);
  return out;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(replay_line)

BOOST_AUTO_TEST_CASE(lines_are_whole_however_the_bytes_come) {
  std::mt19937 random(3);
  std::vector<std::string> expected;
  std::string text;
  for (const std::size_t size : {0U, 1U, 5U, 0U, 70'000U, 1'000'000U, 3U, 262'144U, 262'143U}) {
    expected.emplace_back(size, static_cast<char>('a' + random() % 26));
    text += expected.back() + "\n";
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7'777}, std::size_t{1} << 30}) {
    BOOST_TEST(lines_of(text, piece) == expected, boost::test_tools::per_element());
  }
  expected.emplace_back("no end");
  BOOST_TEST(lines_of(text + "no end", 100'000) == expected, boost::test_tools::per_element());
  BOOST_TEST(lines_of("", 1).empty());
}

BOOST_AUTO_TEST_CASE(the_usual_form_is_read) {
  const auto read = parse(R"({"timestamp": 27482, "input_length":6955,"type" : "text", "output_length": 52 ,)"
                          "\t\"hash_ids\": [46, 0,12345678,123456789 , 1234567890123456, 18446744073709551615] } \r");
  BOOST_REQUIRE(read.line.has_value());
  BOOST_TEST(read.line->timestamp == 27'482U);
  BOOST_TEST(read.line->input_length == 6'955U);
  BOOST_TEST(read.list == (ids{46, 0, 12'345'678, 123'456'789, 1'234'567'890'123'456, ~std::uint64_t{0}}),
             boost::test_tools::per_element());
  BOOST_TEST(parse(R"({"hash_ids":[],"input_length":0,"timestamp":1})").line.has_value());
}

BOOST_AUTO_TEST_CASE(numbers_of_any_length_are_read) {
  std::uint64_t number = 0;
  for (int count = 1; count <= 20; ++count) {
    number = count < 20 ? number * 10 + static_cast<std::uint64_t>(count % 10) : ~std::uint64_t{0};
    const auto read = parse(fmt::format(R"({{"timestamp":{0},"input_length":{0},"hash_ids":[{0},{0}]}})", number));
    BOOST_REQUIRE_MESSAGE(read.line.has_value(), number);
    BOOST_TEST(read.line->timestamp == number);
    BOOST_TEST(read.list == (ids{number, number}), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_CASE(any_other_form_is_left_to_the_parser) {
  for (const std::string_view other : {"",
                                       "{",
                                       "{}",
                                       "[1]",
                                       "x",
                                       R"({"timestamp":1,"input_length":2})",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[1})",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[1]})"
                                       "x",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[1,]})",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[1],})",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[01]})",
                                       R"({"timestamp":1.5,"input_length":2,"hash_ids":[1]})",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[-1]})",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[18446744073709551616]})",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[1 2]})",
                                       R"({"timestamp":"1","input_length":2,"hash_ids":[1]})",
                                       R"({"timestamp":1,"timestamp":1,"input_length":2,"hash_ids":[1]})",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[1],"a":"\n"})",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[1],"a":[]})",
                                       R"({"timestamp":1,"input_length":2,"hash_ids":[1],"a":"µ"})",
                                       R"({"hash_ids":[1],"input_length":2,"timestamp":1)",
                                       R"({"hash_ids":[1],"input_length":2,"timestamp":)"}) {
    BOOST_TEST(!parse(std::string(other)).line.has_value(), other);
    BOOST_TEST(!parse(std::string(other), "}}}}}}}}").line.has_value(), other);
  }
}

BOOST_AUTO_TEST_CASE(what_is_taken_is_what_a_json_parser_finds) {
  const std::string good =
      R"({"timestamp": 10532, "input_length": 26000, "output_length": 17, "hash_ids": [8, 97, 12345678, 100000000017]})";
  constexpr std::string_view bytes = "0123456789,:[]{}\"\\ \t\r.-+eEx\x01\xc3";
  std::mt19937 random(11);
  int taken = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::string text = good;
    for (auto changes = random() % 3 + 1; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      const char byte = bytes[random() % bytes.size()];
      if (random() % 3 == 0)
        text.erase(at, random() % 3 + 1);
      else if (random() % 2 == 0)
        text.insert(at, 1, byte);
      else
        text[at] = byte;
    }
    const auto read = parse(text);
    if (!read.line) continue;
    ++taken;
    const auto json = nlohmann::json::parse(text, nullptr, false);
    BOOST_REQUIRE_MESSAGE(json.is_object(), text);
    BOOST_REQUIRE_EQUAL(json["timestamp"].get<std::uint64_t>(), read.line->timestamp);
    BOOST_REQUIRE_EQUAL(json["input_length"].get<std::uint64_t>(), read.line->input_length);
    BOOST_TEST_REQUIRE((json["hash_ids"].get<ids>() == read.list), text);
  }
  BOOST_TEST(taken > 5'000);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote
