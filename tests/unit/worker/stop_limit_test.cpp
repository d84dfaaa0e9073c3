#include "worker/stop_limit.hpp"

#include <stdlib.h>  // setenv
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <chrono>
#include <string>

#include "tests/support/machine_root.hpp"
#include "transport/local/socket.hpp"
#include "worker/prerequisites.hpp"

using namespace cenote;
using namespace std::chrono_literals;

namespace {

using level = finding::level;

/// A node with a disk, whose stop may take 5 + 20 + 2 s.
struct node_machine : testing::machine_root {
  node_machine() {
    config.node.runtime_dir = path / "run/cenote";
    config.nvme.paths = {path / "disk"};
    ::unsetenv("SYSTEMD_EXEC_PID");
  }
  [[nodiscard]] finding check() const { return check_stop_limit(config, path); }
  void unit(const std::string& name, const std::string& seconds) const {
    file("lib/systemd/system/" + name,
         "[Service]\nExecStart=/usr/bin/cenote node $OPTIONS\nTimeoutStopSec=" + seconds + "\n");
  }
  void set_group(const std::string& group) const {
    file("proc/" + std::to_string(::getpid()) + "/cgroup", "0::" + group);
  }

  config::node_config config = config::default_config();
};

}  // namespace

BOOST_AUTO_TEST_SUITE(the_limit_of_a_stop)

BOOST_AUTO_TEST_CASE(is_not_known_where_nothing_states_it) {
  const node_machine machine;
  const finding found = machine.check();
  BOOST_TEST((found.severity == level::unknown));
  BOOST_TEST(found.state == "not known; a stop in order may take 27s");
  BOOST_TEST(found.remedy.find("node.stop_limit") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(is_the_configured_one_before_any_other) {
  node_machine machine;
  machine.unit("cenote.service", "5");
  machine.config.node.stop_limit = 27s;
  BOOST_TEST((machine.check().severity == level::ok));
  machine.config.node.stop_limit = 26'999ms;
  const finding found = machine.check();
  BOOST_TEST((found.severity == level::warn));
  BOOST_TEST(found.key == stop_limit_key);
  BOOST_TEST(found.remedy.find("node.stop_limit to 27s") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(without_a_tier_that_takes_blocks_need_not_allow_for_their_writing) {
  node_machine machine;
  machine.config.node.stop_limit = 10s;
  BOOST_TEST((machine.check().severity == level::warn));
  machine.config.nvme.paths.clear();
  BOOST_TEST(machine.check().state == "10s by node.stop_limit; a stop in order may take 7s");
  BOOST_TEST((machine.check().severity == level::ok));
}

BOOST_AUTO_TEST_CASE(is_the_shortest_of_the_installed_units_while_no_node_runs) {
  const node_machine machine;
  machine.unit("cenote.service", "45");
  BOOST_TEST((machine.check().severity == level::ok));
  machine.unit("cenote-b.service", "20");
  const finding found = machine.check();
  BOOST_TEST((found.severity == level::warn));
  BOOST_TEST(found.state == "20s by cenote-b.service; a stop in order may take 27s");
  BOOST_TEST(found.remedy.find("TimeoutStopSec=27 in a drop-in of cenote-b.service") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(is_that_of_the_running_nodes_unit_and_of_no_other) {
  const node_machine machine;
  machine.unit("cenote.service", "20");
  machine.unit("cenote-b.service", "infinity");
  const auto listener = local::listen_at(config::socket_path(machine.config));
  BOOST_REQUIRE(listener.has_value());
  machine.set_group("/system.slice/cenote-b.service");
  BOOST_TEST(machine.check().state == "none, by cenote-b.service");
  machine.set_group("/system.slice/cenote.service");
  BOOST_TEST((machine.check().severity == level::warn));
  machine.set_group("/user.slice/session-1.scope");
  BOOST_TEST((machine.check().severity == level::unknown));
}

BOOST_AUTO_TEST_CASE(is_that_of_this_processs_unit_only_if_systemd_executed_it) {
  const node_machine machine;
  machine.unit("cron.service", "2");
  machine.set_group("/system.slice/cron.service");
  BOOST_TEST((machine.check().severity == level::unknown));
  ::setenv("SYSTEMD_EXEC_PID", "1", 1);
  BOOST_TEST((machine.check().severity == level::unknown));
  ::setenv("SYSTEMD_EXEC_PID", std::to_string(::getpid()).c_str(), 1);
  BOOST_TEST((machine.check().severity == level::warn));
  ::unsetenv("SYSTEMD_EXEC_PID");
}

BOOST_AUTO_TEST_CASE(is_in_the_list_of_what_a_node_needs) {
  node_machine machine;
  machine.config.node.stop_limit = 1s;
  const auto all = check_prerequisites(machine.config, machine.path);
  BOOST_TEST(std::ranges::count(all, stop_limit_key, &finding::key) == 1);
}

BOOST_AUTO_TEST_SUITE_END()
