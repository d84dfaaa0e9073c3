#include "core/solid_state.hpp"

#include <boost/test/unit_test.hpp>

#include "tests/support/machine_root.hpp"

namespace {

using namespace cenote;
namespace fs = std::filesystem;

struct fake_mounts : testing::machine_root {
  fake_mounts() {
    file("sys/devices/fast/queue/rotational", "0");
    file("sys/devices/fast/part/partition", "1");
    file("sys/devices/slow/queue/rotational", "1");
    fs::create_directories(path / "sys/dev/block");
  }
  void device(const std::string& number, const std::string& place) const {
    fs::create_directory_symlink(path / "sys/devices" / place, path / "sys/dev/block" / number);
  }
  [[nodiscard]] std::vector<std::string> mounts(const std::string& lines) const {
    for (const auto* place : {"a", "b", "boot", "boot/efi"}) fs::create_directories(path / place);
    file("proc/self/mountinfo", "20 1 254:0 / / rw - ext4 /dev/vda rw\n" + lines);
    std::vector<std::string> all;
    for (const auto& each : solid_state_mounts(path)) all.push_back(each.source + " " + each.mount);
    return all;
  }
};

using names = std::vector<std::string>;

}  // namespace

BOOST_AUTO_TEST_SUITE(solid_state_disks)

BOOST_AUTO_TEST_CASE(are_found_by_their_disk_and_by_that_of_their_partition) {
  const fake_mounts machine;
  machine.device("259:0", "fast");
  machine.device("259:1", "fast/part");
  BOOST_TEST(
      machine.mounts("21 20 259:0 / /a rw,noatime shared:1 - xfs /dev/nvme0n1 rw\n"
                     "22 20 259:1 / /b rw - ext4 /dev/nvme0n1p1 rw") == (names{"/dev/nvme0n1 /a", "/dev/nvme0n1p1 /b"}),
      boost::test_tools::per_element());
  BOOST_TEST(solid_state_mounts(machine.path).front().free > 0U);
}

BOOST_AUTO_TEST_CASE(that_rotate_that_are_read_only_or_whose_kind_is_not_known_are_left_out) {
  const fake_mounts machine;
  machine.device("8:0", "slow");
  machine.device("259:0", "fast");
  BOOST_TEST(machine
                 .mounts("21 20 8:0 / /a rw - ext4 /dev/sda rw\n"
                         "22 20 259:0 / /a ro,rw - ext4 /dev/nvme0n1 ro\n"
                         "23 20 259:0 / /a rw - tmpfs /dev/nvme0n1 rw\n"
                         "24 20 259:7 / /a rw - ext4 /dev/nvme7n1 rw\n"
                         "25 20 259:0 / /missing rw - ext4 /dev/nvme0n1 rw\n"
                         "26 20 259:0\n")
                 .empty());
}

BOOST_AUTO_TEST_CASE(of_the_root_and_of_the_boot_loader_are_left_out_and_each_is_listed_once) {
  const fake_mounts machine;
  machine.device("254:0", "fast");
  machine.device("259:0", "fast");
  machine.device("259:1", "fast/part");
  BOOST_TEST(machine.mounts("21 20 254:0 / /b rw - ext4 /dev/vda rw\n"
                            "22 20 259:1 / /boot rw - ext4 /dev/nvme0n1p1 rw\n"
                            "23 20 259:1 / /boot/efi rw - ext4 /dev/nvme0n1p1 rw\n"
                            "24 20 259:0 /sub /a rw - ext4 /dev/nvme0n1 rw\n"
                            "25 20 259:0 / /b rw - ext4 /dev/nvme0n1 rw\n"
                            "26 20 259:0 / /a rw - ext4 /dev/nvme0n1 rw") == (names{"/dev/nvme0n1 /b"}),
             boost::test_tools::per_element());
}

BOOST_AUTO_TEST_CASE(whose_directory_a_configuration_would_have_to_quote_are_left_out) {
  const fake_mounts machine;
  machine.device("259:0", "fast");
  fs::create_directories(machine.path / "a\"\npaths=x");
  BOOST_TEST(machine.mounts("21 20 259:0 / /a\"\\012paths=x rw - ext4 /dev/nvme0n1 rw").empty());
}

BOOST_AUTO_TEST_SUITE_END()
