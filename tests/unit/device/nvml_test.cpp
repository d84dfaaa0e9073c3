// The driver's list of processes, from a library that has it from a file.
#include "device/nvml.hpp"
#include "tests/unit/device/fake_drivers.hpp"

#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace nvml_test {

using namespace cenote;

namespace {

struct fixture {
  fixture() { ::setenv("FAKE_NVML", file.c_str(), 1); }
  ~fixture() {
    ::unsetenv("FAKE_NVML");
    std::filesystem::remove(file);
  }
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;

  void say(const std::string& lines) const { std::ofstream(file) << lines; }
  [[nodiscard]] static std::string refusal(const std::string& library) {
    const auto opened = open_nvml(library);
    if (opened) return "";
    BOOST_TEST((opened.error().code() == error_code::unsupported));
    return opened.error().message();
  }

  std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("cenote-fake-nvml-" + std::to_string(::getpid()));
};

std::vector<pid_t> listed(gpu_processes& by) {
  auto found = by.list();
  BOOST_REQUIRE_MESSAGE(found, (found ? "" : found.error().describe()));
  return *found;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(the_drivers_processes)

BOOST_FIXTURE_TEST_CASE(those_of_all_gpus_are_listed_as_they_are_at_each_look, fixture) {
  say("17 4\n\n23\n");
  const auto nvml = open_nvml(cenote::testing::fake_nvml);
  BOOST_REQUIRE(nvml);
  BOOST_TEST(listed(**nvml) == (std::vector<pid_t>{17, 4, 23}), boost::test_tools::per_element());
  say("\n\n");
  BOOST_TEST(listed(**nvml).empty());
}

BOOST_FIXTURE_TEST_CASE(however_many_they_are, fixture) {
  std::string line;
  std::vector<pid_t> wanted(500);
  std::iota(wanted.begin(), wanted.end(), 1);
  for (const pid_t each : wanted) line += std::to_string(each) + " ";
  say(line + "\n");
  const auto nvml = open_nvml(cenote::testing::fake_nvml);
  BOOST_REQUIRE(nvml);
  BOOST_TEST(listed(**nvml) == wanted, boost::test_tools::per_element());
}

BOOST_FIXTURE_TEST_CASE(a_gpu_that_is_lost_or_tells_nobody_has_none_and_any_other_failure_is_no_answer, fixture) {
  say("error 15\n7\nerror 3\nerror 4\n");
  const auto nvml = open_nvml(cenote::testing::fake_nvml);
  BOOST_REQUIRE(nvml);
  BOOST_TEST(listed(**nvml) == std::vector<pid_t>{7}, boost::test_tools::per_element());
  say("7\nerror 999\n");
  const auto found = (*nvml)->list();
  BOOST_REQUIRE(!found);
  BOOST_TEST((found.error().code() == error_code::system));
  BOOST_TEST(found.error().message() == "the processes of GPU 1: Unknown Error (999)");
}

BOOST_FIXTURE_TEST_CASE(what_cannot_be_used_says_why, fixture) {
  BOOST_TEST(refusal("libno-such-nvml.so").starts_with("no NVML: libno-such-nvml.so"));
  BOOST_TEST(
      refusal(cenote::testing::fake_nvml_old).ends_with("has no nvmlDeviceGetComputeRunningProcesses: it is too old"));
  BOOST_TEST(refusal(cenote::testing::fake_nvml) == "nvmlInit: Driver Not Loaded");
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace nvml_test
