#include "config/machine_file.hpp"

#include <boost/test/unit_test.hpp>
#include <fstream>

#include "tests/support/machine_root.hpp"

using cenote::config::machine_file;
namespace fs = std::filesystem;

BOOST_AUTO_TEST_SUITE(the_file_of_a_machine)

BOOST_AUTO_TEST_CASE(is_named_if_there_is_one_and_also_if_it_leads_nowhere) {
  const cenote::testing::machine_root machine;
  const fs::path& root = machine.path;
  const fs::path file = root / "etc/cenote/cenote.toml";
  BOOST_TEST(machine_file(root).empty());
  fs::create_directories(file.parent_path());
  BOOST_TEST(machine_file(root).empty());
  std::ofstream(file) << "";
  BOOST_TEST(machine_file(root) == file.native());
  fs::remove(file);
  fs::create_symlink("nowhere", file);
  BOOST_TEST(machine_file(root) == file.native());
}

BOOST_AUTO_TEST_CASE(that_is_below_no_directory_is_absent_and_one_that_cannot_be_looked_at_is_there) {
  const cenote::testing::machine_root machine;
  const fs::path& root = machine.path;
  std::ofstream(root / "etc") << "";
  BOOST_TEST(machine_file(root).empty());
  fs::remove(root / "etc");
  fs::create_symlink("etc", root / "etc");
  BOOST_TEST(!machine_file(root).empty());
}

BOOST_AUTO_TEST_SUITE_END()
