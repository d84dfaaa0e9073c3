#include "core/private_file.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

namespace cenote::private_file_test {

namespace {

struct folder {
  folder() {
    std::string name = "/tmp/cenote-test.XXXXXX";
    BOOST_REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
  }
  folder(const folder&) = delete;
  folder& operator=(const folder&) = delete;
  ~folder() { std::filesystem::remove_all(path); }

  std::filesystem::path path;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(private_files, folder)

BOOST_AUTO_TEST_CASE(a_file_is_made_for_its_owner_alone_in_a_directory_that_is_made_too) {
  const auto file = path / "a" / "b";
  BOOST_REQUIRE(make_private_file(file, "text"));
  const auto found = read_private_file(file, 100, S_IRWXG | S_IRWXO);
  BOOST_REQUIRE(found);
  BOOST_TEST(found->text == "text");
  BOOST_TEST(std::distance(std::filesystem::directory_iterator(path / "a"), {}) == 1);
}

BOOST_AUTO_TEST_CASE(a_file_that_is_there_stays_as_it_is) {
  BOOST_REQUIRE(make_private_file(path / "a", "first"));
  BOOST_REQUIRE(make_private_file(path / "a", "second"));
  BOOST_TEST(read_private_file(path / "a", 100, 0)->text == "first");
}

BOOST_AUTO_TEST_CASE(all_who_make_a_file_at_once_read_the_same_one) {
  std::vector<std::string> found(8);
  std::vector<std::thread> all;
  for (std::size_t i = 0; i < found.size(); ++i) {
    all.emplace_back([&, i] {
      if (make_private_file(path / "a", std::to_string(i))) found[i] = read_private_file(path / "a", 100, 0)->text;
    });
  }
  for (std::thread& each : all) each.join();
  BOOST_TEST(!found.front().empty());
  BOOST_TEST(std::ranges::count(found, found.front()) == 8);
}

BOOST_AUTO_TEST_CASE(a_place_that_cannot_be_written_is_named) {
  const auto made = make_private_file("/proc/none/a", "text");
  BOOST_REQUIRE(!made);
  BOOST_TEST(made.error().message().find("/proc/none") != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::private_file_test
