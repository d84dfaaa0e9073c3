#include "keeper/runtime_dir.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <string>

#include "tests/support/machine_root.hpp"

using namespace cenote;

namespace {

namespace fs = std::filesystem;

struct runtime_place : testing::machine_root {
  std::string directory = (path / "run").native();

  /// By the check, which must agree with a node.
  [[nodiscard]] bool is_usable() const {
    const bool was_there = fs::exists(directory);
    const auto checked = check_runtime_dir(directory);
    BOOST_TEST(fs::exists(directory) == was_there);
    const auto made = make_runtime_dir(directory);
    const bool works = made && open_lock(lock_file_in(directory));
    BOOST_TEST(checked.has_value() == works);
    if (!checked && !made) BOOST_TEST(!checked.error().message().empty());
    return works;
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(a_runtime_directory)

BOOST_AUTO_TEST_CASE(is_made_by_a_node_and_not_by_its_check) {
  const runtime_place place;
  BOOST_TEST(place.is_usable());
  BOOST_TEST(place.is_usable());
}

BOOST_AUTO_TEST_CASE(of_another_user_is_refused_with_both_numbers) {
  if (::geteuid() != 0) {
    BOOST_TEST_MESSAGE("only root can give a directory away");
    return;
  }
  const runtime_place place;
  fs::create_directory(place.directory);
  BOOST_REQUIRE(::chown(place.directory.c_str(), 4242, 4242) == 0);
  BOOST_TEST(!place.is_usable());
  BOOST_TEST(check_runtime_dir(place.directory).error().message().contains("belongs to uid 4242, not to uid 0"));
}

BOOST_AUTO_TEST_CASE(that_is_a_file_or_whose_lock_is_none_is_refused) {
  const runtime_place file;
  file.file("run", "x");
  BOOST_TEST(!file.is_usable());
  const runtime_place folder;
  fs::create_directories(lock_file_in(folder.directory));
  BOOST_TEST(!folder.is_usable());
  const runtime_place link;
  fs::create_directory(link.directory);
  fs::create_symlink(link.path / "target", lock_file_in(link.directory));
  BOOST_TEST(!link.is_usable());
  BOOST_TEST(!fs::exists(link.path / "target"));
}

BOOST_AUTO_TEST_SUITE_END()
