#include "core/machine_decisions.hpp"

#include <boost/test/unit_test.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

#include "core/checksum.hpp"
#include "core/copy_routines.hpp"

namespace {

using namespace cenote;

namespace fs = std::filesystem;

constexpr std::uint32_t never = std::numeric_limits<std::uint32_t>::max();

class folder {
 public:
  folder() {
    std::string name = (fs::temp_directory_path() / "cenote-decisions-XXXXXX").native();
    path_ = ::mkdtemp(name.data());
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() { fs::remove_all(path_); }
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

machine_decisions some_decisions() {
  machine_decisions decisions;
  decisions.judge(copy_case::read, {{1, 5e9}, {2, 6e9}, {16, 9e9}});
  decisions.judge(copy_case::write, {{1, 8e9}, {2, 6e9}});
  decisions.judge(copy_case::checksum, {{1, 8e9}, {2, 1e10}});
  decisions.judge(copy_case::hashed_copy, {{1, 3e9}, {2, 4e9}});
  const auto pays_from = [](std::uint32_t least) {
    std::vector<size_rate> rates;
    for (const std::uint32_t bytes : measured_sizes) rates.push_back({bytes, bytes >= least ? 9.0 : 3.0, 5.0});
    return rates;
  };
  decisions.judge_sizes(copy_case::read, pays_from(128U << 10));
  decisions.judge_sizes(copy_case::write, pays_from(32U << 10));
  return decisions;
}

/// Rates of the routine at each size, beside 1 of memcpy.
std::vector<size_rate> sizes(std::initializer_list<double> advantages) {
  std::vector<size_rate> rates;
  std::size_t place = 0;
  for (const double each : advantages) rates.push_back({measured_sizes.at(place++), each, 1});
  return rates;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(machine_decisions_suite)

BOOST_AUTO_TEST_CASE(each_case_has_its_own_best_candidate) {
  const machine_choice choice = some_decisions().choice(page_kind::small);
  BOOST_TEST(choice.copies[0].routine == 16);
  BOOST_TEST(choice.copies[0].least_bytes == 128U << 10);
  BOOST_TEST(choice.copies[1].routine == 1);
  BOOST_TEST(choice.checksum == 2);
  BOOST_TEST(choice.hashed_copy == 2);
}

BOOST_AUTO_TEST_CASE(huge_pages_have_a_choice_of_their_own_where_they_were_measured) {
  machine_decisions decisions = some_decisions();
  BOOST_TEST((decisions.choice(page_kind::huge) == decisions.choice(page_kind::small)));
  decisions.judge(copy_case::read_huge, {{1, 5e9}, {2, 6e9}});
  BOOST_TEST(decisions.choice(page_kind::huge).copies[0].routine == 2);
  BOOST_TEST(decisions.choice(page_kind::huge).copies[1].routine == 1);
  BOOST_TEST(decisions.choice(page_kind::small).copies[0].routine == 16);
}

BOOST_AUTO_TEST_CASE(a_routine_is_used_from_the_size_on_from_which_it_pays) {
  const auto least_after = [](std::vector<size_rate> rates) {
    machine_decisions decisions;
    decisions.judge(copy_case::read, {{1, 1}, {2, 2}});
    decisions.judge_sizes(copy_case::read, rates);
    return decisions.decision_of(copy_case::read).least_bytes;
  };
  BOOST_TEST(least_after(sizes({1.2, 1.2, 1.2, 1.2, 1.2})) == 32U << 10);
  BOOST_TEST(least_after(sizes({0.5, 0.9, 1.1, 1.2, 1.2})) == 128U << 10);
  BOOST_TEST(least_after(sizes({0.5, 0.6, 0.7, 0.8, 0.9})) == never);
}

BOOST_AUTO_TEST_CASE(a_size_changes_only_when_another_one_wins_twice) {
  machine_decisions decisions;
  decisions.judge(copy_case::read, {{1, 1}, {2, 2}});
  decisions.judge_sizes(copy_case::read, sizes({0.5, 0.5, 1.5, 1.5, 1.5}));
  BOOST_TEST(!decisions.judge_sizes(copy_case::read, sizes({1.5, 1.5, 1.5, 1.5, 1.5})));
  BOOST_TEST(decisions.is_in_doubt());
  BOOST_TEST(decisions.decision_of(copy_case::read).least_bytes == 128U << 10);
  BOOST_TEST(decisions.judge_sizes(copy_case::read, sizes({1.5, 1.5, 1.5, 1.5, 1.5})));
  BOOST_TEST(decisions.decision_of(copy_case::read).least_bytes == 32U << 10);
  BOOST_TEST(!decisions.judge_sizes(copy_case::read, sizes({std::nan(""), 1, 1, 1, 1})));
}

BOOST_AUTO_TEST_CASE(a_new_routine_has_its_size_measured_anew) {
  machine_decisions decisions;
  decisions.judge(copy_case::read, {{1, 1}, {2, 2}, {3, 1}});
  decisions.judge_sizes(copy_case::read, sizes({0.5, 0.5, 0.5, 0.5, 1.5}));
  decisions.judge(copy_case::read, {{1, 1}, {2, 2}, {3, 3}});
  BOOST_TEST(decisions.is_in_doubt());
  BOOST_TEST(decisions.judge(copy_case::read, {{1, 1}, {2, 2}, {3, 3}}));
  BOOST_TEST(decisions.judge_sizes(copy_case::read, sizes({1.5, 1.5, 1.5, 1.5, 1.5})));
  BOOST_TEST(decisions.decision_of(copy_case::read).number == 3);
  BOOST_TEST(decisions.decision_of(copy_case::read).least_bytes == 32U << 10);
}

BOOST_AUTO_TEST_CASE(what_a_file_holds_is_what_was_decided) {
  const folder here;
  const fs::path file = decisions_file(here.path());
  const machine_decisions before = some_decisions();
  BOOST_REQUIRE(save_decisions(file, before, "this machine").has_value());
  const auto after = load_decisions(file, "this machine");
  BOOST_REQUIRE(after.has_value());
  for (std::size_t i = 0; i < copy_case_count; ++i) {
    const auto kind = static_cast<copy_case>(i);
    BOOST_TEST(after->decision_of(kind).number == before.decision_of(kind).number);
    BOOST_TEST(after->decision_of(kind).least_bytes == before.decision_of(kind).least_bytes);
    BOOST_TEST((after->decision_of(kind).rates == before.decision_of(kind).rates));
  }
}

BOOST_AUTO_TEST_CASE(the_file_of_another_machine_or_version_is_not_taken) {
  auto bytes = encode(some_decisions(), "this machine");
  BOOST_TEST((decode_decisions(bytes, "another machine").error().code() == error_code::unsupported));
  bytes[8] = std::byte{99};
  const std::uint64_t sum = checksum_of(std::span(bytes).first(bytes.size() - 8));
  std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
  BOOST_TEST((decode_decisions(bytes, "this machine").error().code() == error_code::unsupported));
}

BOOST_AUTO_TEST_CASE(a_file_that_is_missing_cut_off_or_changed_anywhere_is_not_taken) {
  BOOST_TEST(!load_decisions("/nonexistent/copies", "this machine").has_value());
  const auto whole = encode(some_decisions(), "this machine");
  for (std::size_t size = 0; size < whole.size(); ++size)
    BOOST_TEST(!decode_decisions(std::span(whole).first(size), "this machine").has_value());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    auto changed = whole;
    changed[at] ^= std::byte{0x10};
    BOOST_TEST(!decode_decisions(changed, "this machine").has_value());
  }
}

BOOST_AUTO_TEST_CASE(any_bytes_with_a_right_checksum_are_refused_or_harmless) {
  std::mt19937_64 random(31);
  const auto whole = encode(some_decisions(), "this machine");
  for (int i = 0; i < 20'000; ++i) {
    auto changed = whole;
    for (unsigned n = 0; n <= random() % 4; ++n)
      changed[12 + random() % (changed.size() - 20)] = static_cast<std::byte>(random());
    const std::uint64_t sum = checksum_of(std::span(changed).first(changed.size() - 8));
    std::memcpy(changed.data() + changed.size() - 8, &sum, 8);
    const auto read = decode_decisions(changed, "this machine");
    if (read) static_cast<void>(copy_routine_of(read->choice(page_kind::huge).copies[0].routine));
  }
}

BOOST_AUTO_TEST_CASE(a_machine_is_known_by_its_processor_and_kernel) {
  const folder here;
  fs::create_directories(here.path() / "proc");
  const auto write = [&](std::string_view model) {
    std::ofstream(here.path() / "proc/cpuinfo")
        << "processor\t: 0\nmodel name\t: " << model << "\ncpu MHz\t\t: 2100\n\n";
  };
  write("One");
  const std::string one = machine_identity(here.path());
  BOOST_TEST(one.find("model name\t: One") != std::string::npos);
  BOOST_TEST(one.find("MHz") == std::string::npos);
  BOOST_TEST(one.find("Linux") != std::string::npos);
  write("Two");
  BOOST_TEST(machine_identity(here.path()) != one);
}

BOOST_AUTO_TEST_SUITE_END()
