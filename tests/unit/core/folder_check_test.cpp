#include "core/folder_check.hpp"

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <string>

#include "tests/support/machine_root.hpp"

using namespace cenote;

namespace {

namespace fs = std::filesystem;

std::size_t count_entries(const fs::path& folder) {
  return static_cast<std::size_t>(std::distance(fs::recursive_directory_iterator(folder), {}));
}

std::string refusal_of(const fs::path& folder) {
  const auto usable = check_folder(folder);
  return usable ? "" : usable.error().message();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(a_folder_to_use)

BOOST_AUTO_TEST_CASE(may_be_there_or_be_made_and_nothing_is_left_in_it) {
  const testing::machine_root root;
  BOOST_TEST(refusal_of(root.path) == "");
  BOOST_TEST(refusal_of(root.path / "a" / "b" / "c") == "");
  BOOST_TEST(refusal_of(root.path / "a/") == "");
  BOOST_TEST(count_entries(root.path) == 0U);
}

BOOST_AUTO_TEST_CASE(begins_in_what_of_its_path_is_there) {
  const testing::machine_root root;
  BOOST_TEST(existing_part(root.path / "a" / "b").value() == root.path);
  fs::create_directories(root.path / "a");
  BOOST_TEST(existing_part(root.path / "a" / "b").value() == root.path / "a");
  BOOST_TEST(existing_part("not-there-at-all/b").value() == ".");
  BOOST_TEST(existing_part("").value() == ".");
}

BOOST_AUTO_TEST_CASE(is_refused_where_its_path_leads_through_a_file_or_a_link_to_nothing) {
  const testing::machine_root root;
  root.file("file", "x");
  fs::create_symlink(root.path / "nowhere", root.path / "link");
  BOOST_TEST(refusal_of(root.path / "file") == (root.path / "file").native() + " is not a directory");
  BOOST_TEST(refusal_of(root.path / "file" / "a").ends_with("Not a directory"));
  BOOST_TEST(refusal_of(root.path / "link") == (root.path / "link").native() + " is a link to nothing");
  BOOST_TEST(refusal_of(root.path / "link" / "a") == (root.path / "link").native() + " is a link to nothing");
  BOOST_TEST(!fs::exists(root.path / "nowhere"));
}

BOOST_AUTO_TEST_CASE(is_refused_where_the_file_system_takes_no_folder_or_no_such_name) {
  BOOST_TEST(refusal_of("/proc/cenote").starts_with("mkdir: /proc/cenote: "));
  BOOST_TEST(refusal_of("/proc").starts_with("make a file in /proc: "));
  BOOST_TEST(refusal_of("/" + std::string(5000, 'a')).ends_with("File name too long"));
}

BOOST_AUTO_TEST_SUITE_END()
