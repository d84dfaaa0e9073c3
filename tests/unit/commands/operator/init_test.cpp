#include "commands/operator/init.hpp"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <fstream>
#include <iterator>
#include <regex>

#include "config/node_config.hpp"
#include "config/schema.hpp"
#include "tests/support/machine_root.hpp"

namespace {

using namespace cenote;
namespace fs = std::filesystem;

struct fake_root : testing::machine_root {
  fake_root() { file("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n"); }
  void disk() const {
    file("sys/dev/block/259:0/queue/rotational", "0");
    file("proc/self/mountinfo", "21 20 259:0 / /a rw - xfs /dev/nvme0n1 rw");
    fs::create_directories(path / "a");
  }
  [[nodiscard]] config::node_config loaded(const std::string& text) const {
    file("cenote.toml", text);
    auto config = config::load({.file = path / "cenote.toml", .environment = {}, .sets = {}});
    BOOST_REQUIRE_MESSAGE(config, (config ? "" : config.error().message()));
    return *config;
  }
};

std::string text_of(const fs::path& file) {
  std::ifstream in(file);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

mode_t mode_of(const fs::path& file) {
  struct stat entry {};
  BOOST_REQUIRE(::stat(file.c_str(), &entry) == 0);
  return entry.st_mode & 07777;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(a_configuration_for_this_machine)

BOOST_AUTO_TEST_CASE(takes_half_of_the_memory_or_of_the_cgroups_limit) {
  const fake_root root;
  BOOST_TEST(root.loaded(machine_configuration(root.path)).dram.capacity == 32ULL << 30);
  root.file("proc/self/cgroup", "0::/a");
  root.file("sys/fs/cgroup/a/memory.max", "8589934592");
  root.file("sys/fs/cgroup/a/memory.current", "0");
  BOOST_TEST(root.loaded(machine_configuration(root.path)).dram.capacity == 4ULL << 30);
}

BOOST_AUTO_TEST_CASE(takes_what_is_free_where_that_is_less_than_half) {
  const fake_root root;
  root.file("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 11534336 kB");
  BOOST_TEST(root.loaded(machine_configuration(root.path)).dram.capacity == 10ULL << 30);
  root.file("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 100 kB");
  BOOST_TEST(root.loaded(machine_configuration(root.path)).dram.capacity == 64ULL << 20);
}

BOOST_AUTO_TEST_CASE(leaves_the_default_where_the_memory_is_not_known) {
  const fake_root root;
  fs::remove(root.path / "proc/meminfo");
  BOOST_TEST(root.loaded(machine_configuration(root.path)).dram.capacity == config::default_config().dram.capacity);
}

BOOST_AUTO_TEST_CASE(proposes_a_disk_and_takes_none) {
  const fake_root root;
  root.disk();
  const std::string text = machine_configuration(root.path);
  BOOST_TEST(root.loaded(text).nvme.paths.empty());
  BOOST_TEST(text.find("ReadWritePaths=/a/cenote\n") != std::string::npos);
  const auto taken = root.loaded(std::regex_replace(text, std::regex("\n# ([a-z_]+ = )"), "\n$1"));
  BOOST_TEST(taken.nvme.paths == std::vector<std::string>{"/a/cenote"}, boost::test_tools::per_element());
  BOOST_TEST(taken.nvme.require_mount);
  BOOST_TEST(taken.nvme.capacity <= fs::space(root.path).available);
}

BOOST_AUTO_TEST_CASE(says_of_each_key_what_the_schema_says) {
  const fake_root root;
  root.disk();
  const std::string text = std::regex_replace(machine_configuration(root.path), std::regex("\n# "), " ");
  for (const auto* key :
       {"dram.capacity", "dram.huge_pages", "dram.numa_node", "nvme.paths", "nvme.capacity", "nvme.require_mount"}) {
    BOOST_TEST(text.find(config::find_key(key)->about) != std::string::npos, key);
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(a_written_configuration)

BOOST_AUTO_TEST_CASE(replaces_a_file_when_that_is_allowed_and_keeps_its_mode) {
  const fake_root root;
  const fs::path file = root.path / "cenote.toml";
  BOOST_REQUIRE(write_configuration(file, "a = 1\n", overwriting::refused));
  BOOST_TEST(mode_of(file) == mode_t{0644});
  BOOST_TEST((write_configuration(file, "", overwriting::refused).error().code() == error_code::invalid_argument));
  BOOST_TEST(text_of(file) == "a = 1\n");
  fs::permissions(file, fs::perms::owner_read | fs::perms::group_read);
  BOOST_REQUIRE(write_configuration(file, "b = 1\n", overwriting::allowed));
  BOOST_TEST(text_of(file) == "b = 1\n");
  BOOST_TEST(mode_of(file) == mode_t{0440});
}

BOOST_AUTO_TEST_CASE(goes_behind_a_link_and_into_no_device) {
  const fake_root root;
  root.file("real.toml", "a = 1");
  fs::create_symlink("real.toml", root.path / "link.toml");
  BOOST_REQUIRE(write_configuration(root.path / "link.toml", "b = 1\n", overwriting::allowed));
  BOOST_TEST(fs::is_symlink(root.path / "link.toml"));
  BOOST_TEST(text_of(root.path / "real.toml") == "b = 1\n");
  BOOST_TEST(!write_configuration("/dev/null", "b = 1\n", overwriting::allowed));
  BOOST_TEST(!write_configuration(root.path / "none" / "c.toml", "b = 1\n", overwriting::refused));
}

BOOST_AUTO_TEST_SUITE_END()
