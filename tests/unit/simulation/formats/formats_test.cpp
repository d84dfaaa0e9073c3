#include <simdjson.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <iterator>
#include <string>
#include <vector>

#include "simulation/formats/format.hpp"

namespace cenote::formats {

namespace {

using simulation::chain_access;

/// The lines of one file, as its reader takes them.
class lines {
 public:
  explicit lines(std::string_view name, std::uint64_t block_tokens = 16)
      : format_(find(name)), reader_(format_->open()) {
    read_.block_tokens = block_tokens;
  }

  /// The fault of a line, or nothing.
  std::string take(const std::string& text) {
    const simdjson::padded_string padded(text);
    const simdjson::dom::element object = parser_.parse(padded);
    const auto taken = reader_->take(object, ++number_, read_);
    return taken ? "" : taken.error().text;
  }
  [[nodiscard]] bool recognized(const std::string& text) {
    const simdjson::padded_string padded(text);
    return recognize(parser_.parse(padded)) == format_;
  }
  void end() { reader_->end(read_); }

  [[nodiscard]] const line_request& request(std::size_t place) const { return read_.requests.at(place); }
  [[nodiscard]] std::size_t size() const { return read_.requests.size(); }
  [[nodiscard]] const std::vector<std::string>& instances() const { return read_.instances; }
  void share(key_sharing sharing) { read_.sharing = sharing; }
  void name(key_naming naming) { read_.naming = naming; }
  [[nodiscard]] std::vector<std::uint64_t> ids(std::size_t place) const {
    const auto first = read_.ids.begin() + static_cast<std::ptrdiff_t>(request(place).first);
    return {first, first + static_cast<std::ptrdiff_t>(request(place).count)};
  }

 private:
  const format* format_;
  std::unique_ptr<line_format> reader_;
  line_requests read_;
  simdjson::dom::parser parser_;
  std::uint64_t number_ = 0;
};

std::string log_line(std::string_view type, std::string_view members) {
  return R"({"type": ")" + std::string(type) + R"(", "source": "a", "trigger_time_us": 5, )" + std::string(members) +
         "}";
}

}  // namespace

BOOST_AUTO_TEST_SUITE(trace_formats)

BOOST_AUTO_TEST_CASE(each_format_is_recognized_by_its_own_lines_and_no_other) {
  const std::vector<std::pair<std::string, std::string>> samples{
      {"mooncake", R"({"timestamp": 1, "input_length": 5, "hash_ids": [1]})"},
      {"bailian", R"({"chat_id": 3, "timestamp": 1.5, "input_length": 5, "hash_ids": [1]})"},
      {"tair-log", R"({"type": "StartWriteCache", "source": "a", "keys": [1]})"},
      {"tair-schema", R"({"instance_id": "a", "timestamp_us": 1, "keys": [1]})"}};
  BOOST_TEST(samples.size() == table().size());
  for (const auto& [name, line] : samples) {
    for (const format& each : table()) {
      BOOST_TEST_CONTEXT(name << " by " << each.name) {
        BOOST_TEST(lines(each.name).recognized(line) == (each.name == name));
      }
    }
  }
  BOOST_TEST(find("csv") == nullptr);
}

BOOST_AUTO_TEST_CASE(equal_contents_of_bailian_are_equal_blocks_only_behind_equal_ones) {
  lines read("bailian");
  BOOST_TEST(read.take(R"({"chat_id": 1, "timestamp": 0.5, "input_length": 48, "hash_ids": [7, 8, 7]})") == "");
  BOOST_TEST(read.take(R"({"chat_id": 2, "timestamp": 1, "input_length": 48, "hash_ids": [7, 8, -9]})") == "");
  BOOST_TEST(read.take(R"({"chat_id": 3, "timestamp": 1, "input_length": 32, "hash_ids": [8, 7]})") == "");
  BOOST_TEST((read.ids(0) == std::vector<std::uint64_t>{1, 2, 3}));
  BOOST_TEST((read.ids(1) == std::vector<std::uint64_t>{1, 2, 4}));
  BOOST_TEST((read.ids(2) == std::vector<std::uint64_t>{5, 6}));
}

BOOST_AUTO_TEST_CASE(a_chat_of_bailian_goes_on_the_session_of_its_parent) {
  lines read("bailian");
  const std::string rest = R"("timestamp": 1, "input_length": 16, "hash_ids": [1]})";
  BOOST_TEST(read.take(R"({"chat_id": 1, "parent_chat_id": -1, )" + rest) == "");
  BOOST_TEST(read.take(R"({"chat_id": 2, "parent_chat_id": -1, )" + rest) == "");
  BOOST_TEST(read.take(R"({"chat_id": 3, "parent_chat_id": 1, )" + rest) == "");
  BOOST_TEST(read.take(R"({"chat_id": 4, "parent_chat_id": 3, )" + rest) == "");
  BOOST_TEST(read.request(1).session != read.request(0).session);
  BOOST_TEST(read.request(2).session == read.request(0).session);
  BOOST_TEST(read.request(3).session == read.request(0).session);
}

BOOST_AUTO_TEST_CASE(instances_share_no_block) {
  lines read("tair-schema");
  BOOST_TEST(read.take(R"({"instance_id": "a", "timestamp_us": 1, "keys": [5, -5]})") == "");
  BOOST_TEST(read.take(R"({"instance_id": "b", "timestamp_us": 2, "keys": [5, -5]})") == "");
  BOOST_TEST(read.take(R"({"instance_id": "a", "timestamp_us": 3, "keys": [5, -5]})") == "");
  BOOST_TEST((read.ids(0) == read.ids(2)));
  BOOST_TEST((read.ids(1) == std::vector<std::uint64_t>{3, 4}));
  BOOST_TEST(read.request(1).instance == 1U);
  BOOST_TEST(read.request(0).tokens == 32U);
}

BOOST_AUTO_TEST_CASE(instances_have_the_names_of_their_lines_by_number) {
  lines schema("tair-schema");
  for (const std::string name : {"b", "a", "b", "c"}) {
    BOOST_TEST(schema.take(R"({"instance_id": ")" + name + R"(", "timestamp_us": 1, "keys": [5]})") == "");
  }
  BOOST_TEST((schema.instances() == std::vector<std::string>{"b", "a", "c"}));
  BOOST_TEST(schema.request(1).instance == 1U);
  lines log("tair-log");
  BOOST_TEST(log.take(log_line("GetCacheLocation", R"("keys": [1])")) == "");
  BOOST_TEST((log.instances() == std::vector<std::string>{"a"}));
  BOOST_TEST(lines("mooncake").instances().empty());
}

BOOST_AUTO_TEST_CASE(instances_that_may_share_have_equal_ids_for_equal_keys) {
  lines read("tair-schema");
  read.share(key_sharing::among_instances);
  BOOST_TEST(read.take(R"({"instance_id": "a", "timestamp_us": 1, "keys": [5, -5]})") == "");
  BOOST_TEST(read.take(R"({"instance_id": "b", "timestamp_us": 2, "keys": [5, 7]})") == "");
  BOOST_TEST(read.ids(0).front() == read.ids(1).front());
  BOOST_TEST(read.ids(0).back() != read.ids(1).back());
  BOOST_TEST(read.request(1).instance == 1U);
}

BOOST_AUTO_TEST_CASE(a_write_is_there_when_it_ends_as_far_as_it_went_well) {
  lines read("tair-log");
  BOOST_TEST(read.take(log_line("StartWriteCache", R"("write_session_id": "x", "keys": [1, 2, 3])")) == "");
  BOOST_TEST(read.take(log_line("StartWriteCache", R"("write_session_id": "y", "keys": [1, 2, 3])")) == "");
  BOOST_TEST(read.take(log_line("StartWriteCache", R"("write_session_id": "z", "keys": [1, 2, 3])")) == "");
  BOOST_TEST(read.take(log_line("OtherEvent", R"("keys": 5)")) == "");
  BOOST_TEST(read.size() == 0U);
  BOOST_TEST(read.take(log_line("FinishWriteCache",
                                R"("write_session_id": "y", "success_block": [true, false, true])")) == "");
  BOOST_TEST(read.take(log_line("FinishWriteCache", R"("write_session_id": "x", "success_block": 2)")) == "");
  BOOST_TEST(read.take(log_line("FinishWriteCache", R"("write_session_id": "x", "success_block": 2)")) ==
             "no StartWriteCache has this `write_session_id`");
  read.end();
  BOOST_TEST(read.size() == 3U);
  BOOST_TEST((read.ids(0) == std::vector<std::uint64_t>{1, 3}));
  BOOST_TEST((read.ids(1) == std::vector<std::uint64_t>{1, 2}));
  BOOST_TEST((read.ids(2) == std::vector<std::uint64_t>{1, 2, 3}));
  BOOST_TEST(read.request(2).whole == 100'005U);
  for (std::size_t i = 0; i < 3; ++i) BOOST_TEST((read.request(i).access == chain_access::write));
}

BOOST_AUTO_TEST_CASE(members_that_make_no_sense_are_faults) {
  const auto fault = [](std::string_view format, const std::string& line) { return lines(format).take(line); };
  BOOST_TEST(fault("mooncake", R"({"timestamp": 1, "input_length": 5})") == "`hash_ids` is missing");
  BOOST_TEST(fault("mooncake", R"({"timestamp": 1, "input_length": 5, "hash_ids": [1.5]})") ==
             "`hash_ids` holds 1.5, not a block's id");
  BOOST_TEST(fault("bailian", R"({"chat_id": 1, "timestamp": -0.5, "input_length": 5, "hash_ids": [1]})") ==
             "`timestamp` is no time");
  BOOST_TEST(fault("bailian", R"({"chat_id": 1, "timestamp": 1, "input_length": 5.5, "hash_ids": [1]})") ==
             "`input_length` is no number of tokens, 0 to 1000000000");
  BOOST_TEST(fault("tair-schema", R"({"timestamp_us": 1, "keys": [1]})") == "`instance_id` is missing, or no text");
  BOOST_TEST(
      fault("tair-schema", R"({"instance_id": "a", "timestamp_us": 1, "keys": [1], "query_type": "batch_get"})") ==
      "`query_type` is another one than prefix_match");
  BOOST_TEST(fault("tair-log", log_line("StartWriteCache", R"("keys": [1])")) ==
             "`write_session_id` is missing, or no text");
  BOOST_TEST(fault("tair-log", log_line("GetCacheLocation", R"("keys": {})")) == "`keys` is no list");
  BOOST_TEST(fault("bailian", R"({"chat_id": 1, "timestamp": 1, "input_length": 5, "hash_ids": [")" +
                                  std::string(100'000, 'x') + R"("]})") ==
             "`hash_ids` holds \"" + std::string(63, 'x') + "…, not a block's id");
  BOOST_TEST(fault("tair-schema", R"({"instance_id": ")" + std::string(1'025, 'x') +
                                      R"(", "timestamp_us": 1, "keys": [1]})") == "`instance_id` has over 1024 bytes");
}

BOOST_AUTO_TEST_CASE(other_names_and_forms_of_the_same_members_are_taken) {
  for (const auto* line : {R"({"created_time": 5.0, "input_tokens": 32, "block_hashes": [7, -1]})",
                           R"({"timestamp": "5", "prompt_tokens": "32", "hash_ids": [7, -1]})",
                           R"({"timestamp_ns": 5, "isl": 32.0, "block_ids": [7, 18446744073709551615]})"}) {
    lines read("mooncake");
    BOOST_TEST(read.recognized(line), line);
    BOOST_TEST(read.take(line) == "");
    BOOST_TEST(read.request(0).time == 5.0);
    BOOST_TEST(read.request(0).tokens == 32U);
    BOOST_TEST((read.ids(0) == std::vector<std::uint64_t>{7, ~std::uint64_t{0}}));
  }
}

BOOST_AUTO_TEST_CASE(ids_that_are_text_are_equal_where_the_text_is) {
  lines read("mooncake");
  BOOST_TEST(read.take(R"({"timestamp": 1, "input_length": 32, "hash_ids": ["00ff", "b"]})") == "");
  BOOST_TEST(read.take(R"({"timestamp": 1, "input_length": 48, "hash_ids": ["00ff", "b", "ff"]})") == "");
  BOOST_TEST(read.ids(0)[0] == read.ids(1)[0]);
  BOOST_TEST(read.ids(0)[1] == read.ids(1)[1]);
  BOOST_TEST(read.ids(1)[2] != read.ids(1)[0]);
  BOOST_TEST(read.take(R"({"timestamp": 1, "input_length": 32, "hash_ids": ["1", 1]})") ==
             "`hash_ids` holds numbers beside text");
}

BOOST_AUTO_TEST_CASE(turns_without_a_time_have_the_delay_behind_the_one_before) {
  using enum line_request::time_source;
  lines read("mooncake");
  BOOST_TEST(read.take(R"({"session_id": "s", "timestamp": 5, "input_length": 16, "hash_ids": [1]})") == "");
  BOOST_TEST(read.take(R"({"session_id": "t", "delay": 7.5, "input_length": 16, "hash_ids": [1]})") == "");
  BOOST_TEST(read.take(R"({"input_length": 16, "hash_ids": [1]})") == "");
  BOOST_TEST(read.take(R"({"turns": [{"timestamp": 9, "input_length": 16, "hash_ids": [1]},
                                     {"delay": 2, "input_length": 32, "hash_ids": [1, 2]}]})") == "");
  BOOST_TEST((read.request(0).source == clock));
  BOOST_TEST((read.request(1).source == delay));
  BOOST_TEST(read.request(1).time == 7.5);
  BOOST_TEST((read.request(2).source == none));
  BOOST_TEST(read.size() == 5U);
  BOOST_TEST((read.request(4).source == delay));
  BOOST_TEST(read.request(3).session == read.request(4).session);
  BOOST_TEST(read.request(0).session != read.request(1).session);
  BOOST_TEST(read.take(R"({"session_id": 1, "delay": -1, "input_length": 16, "hash_ids": [1]})") ==
             "`delay` is no number of milliseconds");
  BOOST_TEST(read.take(R"({"turns": [5]})") == "`turns` holds something else than objects");
}

BOOST_AUTO_TEST_CASE(hashed_ids_are_equal_where_numbered_ones_are) {
  const std::vector<std::pair<std::string_view, std::vector<std::string>>> cases{
      {"mooncake",
       {R"({"timestamp": 1, "input_length": 32, "hash_ids": ["a", "b"]})",
        R"({"timestamp": 2, "input_length": 48, "hash_ids": ["a", "c", "b"], "session_id": "s"})"}},
      {"bailian",
       {R"({"chat_id": 1, "parent_chat_id": -1, "timestamp": 1, "input_length": 48, "hash_ids": [5, 6, 5]})",
        R"({"chat_id": 2, "parent_chat_id": 1, "timestamp": 2, "input_length": 48, "hash_ids": [5, 6, 7]})",
        R"({"chat_id": 3, "parent_chat_id": -1, "timestamp": 3, "input_length": 32, "hash_ids": [6, 5]})"}},
      {"tair-schema",
       {R"({"instance_id": "x", "timestamp_us": 1, "keys": [1, 2, 3], "input_len": 48})",
        R"({"instance_id": "y", "timestamp_us": 2, "keys": [1, 2], "input_len": 32})",
        R"({"instance_id": "x", "timestamp_us": 3, "keys": [1, 4], "input_len": 32})"}}};
  for (const auto& [name, texts] : cases) {
    lines numbered(name);
    lines hashed(name);
    hashed.name(key_naming::hashed);
    std::vector<std::uint64_t> one;
    std::vector<std::uint64_t> other;
    for (const std::string& text : texts) {
      BOOST_TEST(numbered.take(text) == "");
      BOOST_TEST(hashed.take(text) == "");
      std::ranges::copy(numbered.ids(numbered.size() - 1), std::back_inserter(one));
      std::ranges::copy(hashed.ids(hashed.size() - 1), std::back_inserter(other));
    }
    BOOST_REQUIRE(one.size() == other.size());
    for (std::size_t i = 0; i < one.size(); ++i) {
      for (std::size_t k = 0; k < one.size(); ++k) BOOST_TEST((one[i] == one[k]) == (other[i] == other[k]));
    }
    BOOST_TEST(numbered.instances() == hashed.instances(), boost::test_tools::per_element());
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::formats
