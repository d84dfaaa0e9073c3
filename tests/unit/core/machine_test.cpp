#include "core/machine.hpp"

#include <boost/test/unit_test.hpp>
#include <string>

#include "tests/support/machine_root.hpp"

namespace {

using namespace cenote;
namespace fs = std::filesystem;

struct fake_machine : testing::machine_root {
  fake_machine() { file("proc/meminfo", "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   4194304 kB\n"); }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(the_machine)

BOOST_AUTO_TEST_CASE(has_the_memory_that_the_kernel_reports) {
  const fake_machine machine;
  const auto limits = read_memory_limits(machine.path);
  BOOST_REQUIRE(limits);
  BOOST_TEST(limits->total == 8ULL << 30);
  BOOST_TEST(limits->available == 4ULL << 30);
  BOOST_TEST(!limits->cgroup.has_value());
}

BOOST_AUTO_TEST_CASE(is_bounded_by_the_smallest_limit_on_the_way_up_in_cgroup_v2) {
  const fake_machine machine;
  machine.file("proc/self/cgroup", "0::/system.slice/cenote.service\n");
  machine.file("sys/fs/cgroup/system.slice/cenote.service/memory.max", "max\n");
  machine.file("sys/fs/cgroup/system.slice/memory.max", "1073741824\n");
  const auto limits = read_memory_limits(machine.path);
  BOOST_REQUIRE(limits);
  BOOST_TEST(limits->cgroup.value_or(0) == 1ULL << 30);
  BOOST_TEST(limits->cgroup_file.ends_with("system.slice/memory.max"));
}

BOOST_AUTO_TEST_CASE(has_left_what_the_tightest_group_has_without_files_that_can_be_dropped) {
  const fake_machine machine;
  machine.file("proc/self/cgroup", "0::/a/b\n");
  machine.file("sys/fs/cgroup/a/b/memory.max", "1000000\n");
  machine.file("sys/fs/cgroup/a/b/memory.current", "900000\n");
  machine.file("sys/fs/cgroup/a/b/memory.stat", "anon 1\nshmem 500000\ninactive_file 200000\nactive_file 100000\n");
  machine.file("sys/fs/cgroup/a/memory.max", "2000000\n");
  machine.file("sys/fs/cgroup/a/memory.current", "1700000\n");
  BOOST_TEST(read_memory_limits(machine.path)->cgroup_left.value_or(0) == 300000U);
}

BOOST_AUTO_TEST_CASE(is_bounded_by_cgroup_v1_which_writes_no_limit_as_a_huge_number) {
  const fake_machine machine;
  machine.file("proc/self/cgroup", "3:cpu,cpuacct:/x\n2:memory:/docker/abc\n");
  machine.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  BOOST_TEST(!read_memory_limits(machine.path)->cgroup.has_value());
  // A container sees its own group at the root of the mount.
  machine.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "2147483648\n");
  BOOST_TEST(read_memory_limits(machine.path)->cgroup.value_or(0) == 2ULL << 30);
}

BOOST_AUTO_TEST_CASE(keeps_a_share_of_the_machine_and_of_the_group_back) {
  memory_limits limits;
  limits.total = 8ULL << 30;
  limits.available = 1ULL << 30;
  BOOST_TEST(memory_to_spare(limits) == 768ULL << 20);
  limits.cgroup = 1ULL << 30;
  limits.cgroup_left = 100ULL << 20;
  BOOST_TEST(memory_to_spare(limits) == 68ULL << 20);
  limits.available = 1;
  BOOST_TEST(memory_to_spare(limits) == 0U);
}

BOOST_AUTO_TEST_CASE(refuses_a_capacity_larger_than_memory_or_limit_with_the_numbers) {
  memory_limits limits;
  limits.total = 8ULL << 30;
  BOOST_TEST(check_capacity(8ULL << 30, limits).has_value());
  const auto refused = check_capacity(9ULL << 30, limits);
  BOOST_REQUIRE(!refused);
  BOOST_TEST((refused.error().code() == error_code::invalid_config));
  BOOST_TEST(refused.error().message().find("9GiB") != std::string::npos);
  BOOST_TEST(refused.error().message().find("8.0 GiB") != std::string::npos);
  limits.cgroup = 1ULL << 30;
  BOOST_TEST(!check_capacity(2ULL << 30, limits));
}

BOOST_AUTO_TEST_CASE(that_hides_its_memory_is_an_error_to_ask_but_refuses_nothing) {
  BOOST_TEST(!read_memory_limits("/nonexistent"));
}

BOOST_AUTO_TEST_CASE(has_the_numa_nodes_that_the_kernel_lists) {
  const fake_machine machine;
  BOOST_TEST(check_numa_node(7, machine.path).has_value(), "it does not tell");
  machine.file("sys/devices/system/node/online", "0-1,4\n");
  for (const int node : {0, 1, 4}) BOOST_TEST(check_numa_node(node, machine.path).has_value());
  BOOST_TEST(check_numa_node({}, machine.path).has_value());
  for (const int node : {2, 3, 5, 7}) {
    const auto refused = check_numa_node(node, machine.path);
    BOOST_REQUIRE(!refused);
    BOOST_TEST((refused.error().code() == error_code::invalid_config));
    BOOST_TEST(refused.error().message().find("it has 0-1,4") != std::string::npos, refused.error().message());
  }
}

BOOST_AUTO_TEST_SUITE_END()
