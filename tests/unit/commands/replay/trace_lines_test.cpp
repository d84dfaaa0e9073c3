#include "commands/replay/trace_lines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <new>
#include <string>
#include <vector>

namespace cenote::replay::trace_lines_test {

namespace {

/// A text in memory.
class text_source final : public byte_source {
 public:
  explicit text_source(std::string text) : text_(std::move(text)) {}

  result<std::size_t> read(std::span<char> target) override {
    const std::size_t count = text_.copy(target.data(), target.size(), place_);
    place_ += count;
    return count;
  }
  [[nodiscard]] std::size_t place() const noexcept { return place_; }

 private:
  std::string text_;
  std::size_t place_ = 0;
};

/// There is no memory for what it unpacks.
class greedy_source final : public byte_source {
 public:
  result<std::size_t> read(std::span<char> /*target*/) override { throw std::bad_alloc(); }
};

std::string line(int time, std::string_view ids, int tokens = 512) {
  return fmt::format(R"({{"timestamp": {}, "input_length": {}, "hash_ids": [{}]}})"
                     "\n",
                     time, tokens, ids);
}

const std::string path = "trace";
const trace_reading usual{.format = "auto"};

/// The refusal of all lines of `text` and of what they are together, or nothing.
std::string refusal_of(const std::string& text, const trace_reading& reading = usual) {
  text_source source(text);
  trace_lines lines(path, reading, formats::key_naming::numbered);
  const auto read = lines.read(source);
  if (!read) return read.error().message();
  const auto judged = lines.judge(lines.requests().requests.size());
  return judged ? "" : judged.error().message();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(lines_of_traces)

BOOST_AUTO_TEST_CASE(requests_with_many_ids_are_handed_on_before_the_usual_number_of_them_is_there) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += line(i, fmt::format("{0}1,{0}2,{0}3,{0}4", i + 1), 4 * 512);
  text_source source(text);
  trace_lines lines(path, usual, formats::key_naming::hashed, {.undecided = 10});
  std::size_t most = 0;
  std::size_t requests = 0;
  const auto read = lines.read(source, [&] {
    most = std::max(most, lines.requests().ids.size());
    requests += lines.requests().requests.size();
    lines.drop_requests();
    return result<void>{};
  });
  BOOST_TEST(read.has_value());
  BOOST_TEST(requests == 40U);
  BOOST_TEST(most == 12U);
}

BOOST_AUTO_TEST_CASE(a_line_without_an_end_is_refused_though_all_lines_stay) {
  constexpr std::size_t size = std::size_t{16} << 20;
  text_source source(std::string(size, 'x'));
  trace_lines lines(path, usual, formats::key_naming::numbered, {.line = 1'000, .room = std::uint64_t{1} << 20});
  const auto read = lines.read(source);
  BOOST_REQUIRE(!read.has_value());
  BOOST_TEST((read.error().code() == error_code::limit_exceeded));
  BOOST_TEST(read.error().message() == "trace:1: the line has over 65536 bytes");
  BOOST_TEST(source.place() < size);
}

BOOST_AUTO_TEST_CASE(memory_that_is_not_there_is_an_error_with_the_files_name) {
  greedy_source source;
  trace_lines lines(path, usual, formats::key_naming::numbered);
  const auto read = lines.read(source);
  BOOST_REQUIRE(!read.has_value());
  BOOST_TEST((read.error().code() == error_code::limit_exceeded));
  BOOST_TEST(read.error().message() == "there is not enough memory for a line of trace");
}

BOOST_AUTO_TEST_CASE(the_first_fault_that_left_a_line_out_is_named_and_no_remark) {
  const std::string remark = line(0, "1", 4 * 512);
  BOOST_TEST(refusal_of(remark + "{no\n") ==
             "trace: 1 of 2 lines make no sense, first of all trace:2: this is no JSON; --allow-left-out goes on "
             "without them");
  BOOST_TEST(refusal_of("\n \n") == "trace holds no request; it is empty");
  const std::string event = R"({"type": "Other", "source": "a", "trigger_time_us": 1})"
                            "\n";
  BOOST_TEST(refusal_of(event + event, {.format = "tair-log"}) == "trace holds no request; none of its 2 lines is one");
  BOOST_TEST(refusal_of("{no\n") == "trace holds no request; first of all, trace:1: this is no JSON");
}

BOOST_AUTO_TEST_CASE(a_line_without_ids_is_told_which_member_it_lacks_though_nothing_tells_its_format) {
  const std::string without = R"({"timestamp": 1, "input_length": 512})"
                              "\n";
  BOOST_TEST(refusal_of(without, {.format = "auto"}).contains("trace:1: `hash_ids` is missing"));
  const std::string other = R"({"block_hashes": [1], "chat_id": 1})"
                            "\n";
  BOOST_TEST(refusal_of(other, {.format = "auto"}).contains("trace:1: this is a line of no format that is known"));
}

BOOST_AUTO_TEST_CASE(a_ctrace_that_is_no_file_of_its_own_is_explained) {
  BOOST_TEST(refusal_of("\xce"
                        "ctrace\n\x01\x02")
                 .starts_with("trace is a .ctrace file that is packed, or comes through a pipe"));
  BOOST_TEST(refusal_of("\xce"
                        "ctraces\n")
                 .starts_with("trace holds no request"));
}

BOOST_AUTO_TEST_CASE(requests_that_wait_for_later_lines_are_refused_at_the_first_where_none_stay) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += fmt::format(
        R"({{"type": "StartWriteCache", "source": "a", "trigger_time_us": {0}, "write_session_id": "{0}", "keys": [1]}})"
        "\n",
        i);
  }
  text_source source(text);
  trace_lines lines(path, usual, formats::key_naming::hashed);
  const auto read = lines.read(source, [] { return result<void>{}; });
  BOOST_REQUIRE(!read.has_value());
  BOOST_TEST((read.error().code() == error_code::unsupported));
  BOOST_TEST(read.error().message() == fmt::format("trace:1: {}", apart_text));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::replay::trace_lines_test
