#include "config/machine_file.hpp"

#include <boost/test/unit_test.hpp>
#include <fstream>

using cenote::config::machine_file;
namespace fs = std::filesystem;

BOOST_AUTO_TEST_SUITE(the_file_of_a_machine)

BOOST_AUTO_TEST_CASE(is_named_if_there_is_one_and_also_if_it_leads_nowhere) {
  char name[] = "/tmp/cenote-machine-file-XXXXXX";
  const fs::path root = ::mkdtemp(name);
  const fs::path file = root / "etc/cenote/cenote.toml";
  BOOST_TEST(machine_file(root).empty());
  fs::create_directories(file.parent_path());
  BOOST_TEST(machine_file(root).empty());
  std::ofstream(file) << "";
  BOOST_TEST(machine_file(root) == file.native());
  fs::remove(file);
  fs::create_symlink("nowhere", file);
  BOOST_TEST(machine_file(root) == file.native());
  fs::remove_all(root);
}

BOOST_AUTO_TEST_CASE(that_is_below_no_directory_is_absent_and_one_that_cannot_be_looked_at_is_there) {
  char name[] = "/tmp/cenote-machine-file-XXXXXX";
  const fs::path root = ::mkdtemp(name);
  std::ofstream(root / "etc") << "";
  BOOST_TEST(machine_file(root).empty());
  fs::remove(root / "etc");
  fs::create_symlink("etc", root / "etc");
  BOOST_TEST(!machine_file(root).empty());
  fs::remove_all(root);
}

BOOST_AUTO_TEST_SUITE_END()
