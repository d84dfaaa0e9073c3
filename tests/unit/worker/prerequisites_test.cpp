#include "worker/prerequisites.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "core/unique_fd.hpp"
#include "tests/support/machine_root.hpp"

using namespace cenote;

namespace {

namespace fs = std::filesystem;
using level = finding::level;

/// A machine of 1 GiB with one NUMA node, and a configuration that suits it.
struct small_machine : testing::machine_root {
  small_machine() {
    file("proc/meminfo", "MemTotal: 1048576 kB\nMemAvailable: 1048576 kB\n");
    file("sys/devices/system/node/online", "0");
    config.dram.capacity = 64ULL << 20U;
    config.node.runtime_dir = path / "run";
    config.remote.state_dir = path / "state";
    config.nvme.capacity = 64ULL << 20U;
  }

  /// The keys of all failures.
  [[nodiscard]] std::set<std::string> failures() const {
    std::set<std::string> keys;
    for (const finding& one : check_prerequisites(config, path)) {
      if (one.severity != level::fail) continue;
      BOOST_TEST(one.remedy.starts_with(one.key));
      keys.insert(one.key);
    }
    return keys;
  }
  [[nodiscard]] std::set<std::string> entries() const {
    std::set<std::string> names;
    for (const auto& entry : fs::recursive_directory_iterator(path)) names.insert(entry.path());
    return names;
  }
  void join_cluster(const std::string& host, std::uint16_t port) {
    file("secret", "0123456789abcdef0123456789");
    ::chmod((path / "secret").c_str(), 0600);
    config.cluster.name = "a";
    config.cluster.id = "c";
    config.cluster.listen = endpoint{host, port};
    config.cluster.secret_file = path / "secret";
    config.cluster.trusted_network = true;
  }

  config::node_config config = config::default_config();
};

/// A port of 127.0.0.1 that is taken.
struct taken_port {
  taken_port() : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof place;
    BOOST_REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&place), size) == 0);
    BOOST_REQUIRE(::listen(socket.get(), 1) == 0);
    BOOST_REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&place), &size) == 0);
    number = ntohs(place.sin_port);
  }
  unique_fd socket;
  std::uint16_t number = 0;
};

struct wrong_setting {
  const char* key;
  std::function<void(small_machine&)> set;
};

const std::vector<wrong_setting>& wrong_settings() {
  static const std::vector<wrong_setting> all{
      {"dram.capacity", [](auto& machine) { machine.config.dram.capacity = 2ULL << 30U; }},
      {"dram.capacity",
       [](auto& machine) {
         machine.file("proc/self/cgroup", "0::/a");
         machine.file("sys/fs/cgroup/a/memory.max", "16777216");
       }},
      {"dram.numa_node", [](auto& machine) { machine.config.dram.numa_node = 3; }},
      {"node.runtime_dir", [](auto& machine) { machine.file("run", "x"); }},
      {"node.socket",
       [](auto& machine) {
         machine.file("socket", "x");
         machine.config.node.socket = machine.path / "socket";
       }},
      {"node.socket", [](auto& machine) { machine.config.node.socket = "/proc/cenote/node.sock"; }},
      {"nvme.paths",
       [](auto& machine) {
         machine.file("disk/data", "somebody's");
         machine.config.nvme.paths = {machine.path / "disk"};
       }},
      {"nvme.capacity",
       [](auto& machine) {
         machine.config.nvme.paths = {machine.path / "disk"};
         machine.config.nvme.capacity = 1ULL << 58U;
       }},
      {"remote.backends", [](auto& machine) { machine.config.remote.backends = {"rediss://host?ca=/no.pem"}; }},
      {"remote.backends", [](auto& machine) { machine.config.remote.backends = {"peers"}; }},
      {"remote.backends",
       [](auto& machine) {
         machine.config.remote.backends = {"redis://a", "redis://a:6379"};
       }},
      {"remote.auth_file",
       [](auto& machine) {
         machine.config.remote.backends = {"redis://a"};
         machine.config.remote.auth_file = machine.path / "nowhere";
       }},
      {"remote.state_dir",
       [](auto& machine) {
         machine.file("state", "x");
         machine.config.remote.backends = {"redis://a"};
       }},
      {"cluster.listen", [](auto& machine) { machine.join_cluster("192.0.2.1", 7000); }},  // of no machine
      {"cluster.listen", [](auto& machine) { machine.join_cluster("::1", 7000); }},
      {"cluster.secret_file",
       [](auto& machine) {
         machine.join_cluster("127.0.0.1", 0);
         ::chmod((machine.path / "secret").c_str(), 0644);
       }},
      {"cluster.ucx",
       [](auto& machine) {
         machine.join_cluster("127.0.0.1", 0);
         machine.config.cluster.ucx = {"UCX_TLS=nothing"};
       }},
  };
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(what_a_node_needs)

BOOST_AUTO_TEST_CASE(is_there_on_a_machine_that_suits_it_and_nothing_is_made_there) {
  small_machine machine;
  machine.config.nvme.paths = {machine.path / "disk" / "store"};
  machine.config.remote.backends = {"redis://nowhere.invalid", "peers"};
  machine.config.metrics.listen = endpoint{"127.0.0.1", 0};
  machine.join_cluster("127.0.0.1", 0);
  const auto before = machine.entries();
  BOOST_TEST(machine.failures().empty());
  BOOST_TEST((machine.entries() == before));
}

BOOST_AUTO_TEST_CASE(is_refused_by_the_key_that_is_wrong_and_by_no_other) {
  for (const wrong_setting& wrong : wrong_settings()) {
    small_machine machine;
    wrong.set(machine);
    const auto before = machine.entries();
    BOOST_TEST_CONTEXT(wrong.key) {
      BOOST_TEST((machine.failures() == std::set<std::string>{wrong.key}));
      BOOST_TEST((machine.entries() == before));
    }
  }
}

BOOST_AUTO_TEST_CASE(may_be_in_use_by_this_very_node_which_is_a_warning_with_its_key) {
  small_machine machine;
  const taken_port cluster;
  const taken_port metrics;
  machine.join_cluster("127.0.0.1", cluster.number);
  machine.config.metrics.listen = endpoint{"127.0.0.1", metrics.number};
  std::set<std::string> keys;
  for (const finding& one : check_prerequisites(machine.config, machine.path)) {
    BOOST_TEST((one.severity != level::fail));
    if (one.severity == level::warn && !one.key.empty()) keys.insert(one.key);
  }
  BOOST_TEST((keys == std::set<std::string>{"cluster.listen", "metrics.listen"}));
}

BOOST_AUTO_TEST_CASE(is_no_collector_of_spans_so_authorities_that_cannot_be_read_are_a_warning) {
  small_machine machine;
  machine.config.trace = {.otlp = "https://127.0.0.1:1/v1/traces", .ca = machine.path / "none.pem"};
  BOOST_TEST(machine.failures().empty());
  const auto all = check_prerequisites(machine.config, machine.path);
  const auto found = std::ranges::find(all, "trace.ca", &finding::key);
  BOOST_REQUIRE((found != all.end()));
  BOOST_TEST((found->severity == level::warn));
  BOOST_TEST(found->remedy.find("none.pem") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(has_a_remedy_with_every_finding_that_is_not_well) {
  for (const wrong_setting& wrong : wrong_settings()) {
    small_machine machine;
    wrong.set(machine);
    for (const finding& one : check_prerequisites(machine.config, machine.path))
      if (one.severity != level::ok) BOOST_TEST(!one.remedy.empty(), one.subject);
  }
}

BOOST_AUTO_TEST_SUITE_END()
