#include "commands/bench/plain_loops.hpp"

#include <unistd.h>

#include <array>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "commands/bench/support.hpp"

using namespace cenote;
using namespace cenote::bench;

namespace {

/// A file that goes away with it.
class text_file {
 public:
  explicit text_file(const std::string& text) {
    ::close(::mkstemp(path_.data()));
    std::ofstream(path_) << text;
  }
  text_file(const text_file&) = delete;
  text_file& operator=(const text_file&) = delete;
  ~text_file() { std::filesystem::remove(path_); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_ = "/tmp/cenote-plain-loops-XXXXXX";
};

void publish(memory::block_record& record, std::span<const std::byte> key) {
  record.set_key(full_key(key));
  record.set(memory::block_state::present, 2);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(bench_plain_loops_tests)

BOOST_AUTO_TEST_CASE(every_line_end_counts_also_those_behind_the_first_buffer) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += "a line\n";
  BOOST_TEST(count_lines(text_file(text).path()).value() == 100'000U);
  BOOST_TEST(count_lines(text_file("no end").path()).value() == 0U);
  BOOST_TEST((count_lines("/nowhere/at/all").error().code() == error_code::system));
}

BOOST_AUTO_TEST_CASE(a_repeat_is_an_identity_that_came_before) {
  const std::array<std::uint64_t, 7> ids{5, 0, 5, ~std::uint64_t{0}, 0, 5, 7};
  BOOST_TEST(count_repeats(ids, 4) == 3U);
  BOOST_TEST(count_repeats({}, 0) == 0U);
}

BOOST_AUTO_TEST_CASE(repeats_are_found_where_places_collide) {
  std::vector<std::uint64_t> ids;
  for (std::uint64_t i = 0; i < 2'000; ++i) ids.push_back(i % 1'000 << 54);
  BOOST_TEST(count_repeats(ids, 1'000) == 1'000U);
}

BOOST_AUTO_TEST_CASE(records_that_are_present_are_counted_and_those_without_a_key_are_damaged) {
  const auto records = memory::record_table::create();
  BOOST_REQUIRE(records);
  const key_list keys(1, 0, 3);
  for (std::uint32_t i = 0; i < 3; ++i) publish((*records)[i], keys.all()[i]);
  (*records)[1].key_size = 0;
  (*records)[3].set(memory::block_state::granted, 1);
  const record_counts found = check_records(*records, 4);
  BOOST_TEST(found.present == 3U);
  BOOST_TEST(found.damaged == 1U);
  BOOST_TEST(check_records(*records, 1).present == 1U);
}

BOOST_AUTO_TEST_CASE(a_key_counts_its_holders_until_they_release_it) {
  const key_list keys(1, 0, 4);
  counted_keys table(keys.some(0, 3));
  std::vector<std::atomic<std::uint32_t>*> held(4);
  BOOST_TEST(table.hold(keys.some(0, 3), held) == 3U);
  BOOST_TEST(table.holders(keys.all()[2]) == 1U);
  counted_keys::release(std::span(held).first(3));
  BOOST_TEST(table.holders(keys.all()[2]) == 0U);
  BOOST_TEST(table.hold(keys.all(), held) == 3U);
}

BOOST_AUTO_TEST_SUITE_END()
