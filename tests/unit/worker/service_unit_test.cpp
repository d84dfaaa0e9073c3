#include "worker/service_unit.hpp"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string>

#include "tests/support/machine_root.hpp"

using namespace cenote;
using namespace std::chrono_literals;

namespace {

namespace fs = std::filesystem;

constexpr auto node_service = "[Service]\nExecStart=/usr/bin/cenote node\nTimeoutStopSec=45\n";

struct systemd_machine : testing::machine_root {
  /// A systemctl that prints this for the unit of that name, and fails for all others.
  void systemctl(const std::string& unit, const std::string& text) const {
    fs::create_directories(path / "run/systemd/system");
    file("usr/bin/systemctl", "#!/bin/sh\nfor last; do :; done\n[ \"$last\" = '" + unit + "' ] && " + text);
    ::chmod((path / "usr/bin/systemctl").c_str(), 0755);
  }
  [[nodiscard]] std::string owner_by(const std::string& cgroup) const {
    file("proc/7/cgroup", cgroup);
    const auto unit = unit_of(7, path);
    if (!unit) return "";
    return (unit->manager == service_unit::owner::user ? "user " : "system ") + unit->name;
  }
  [[nodiscard]] std::optional<std::chrono::nanoseconds> limit(const std::string& name = "cenote.service") const {
    return stop_limit_of({service_unit::owner::system, name}, path);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(a_service_unit)

BOOST_AUTO_TEST_CASE(states_time_as_systemd_writes_it) {
  BOOST_TEST((parse_time_span("45") == 45s));
  BOOST_TEST((parse_time_span(" 45s ") == 45s));
  BOOST_TEST((parse_time_span("1min 30s") == 90s));
  BOOST_TEST((parse_time_span("1min30s") == 90s));
  BOOST_TEST((parse_time_span("1.5h") == 5400s));
  BOOST_TEST((parse_time_span("2 days 500ms") == 172'800'500ms));
  BOOST_TEST((parse_time_span("infinity") == unlimited_stop));
}

BOOST_AUTO_TEST_CASE(states_no_time_by_other_text) {
  for (const char* text : {"", " ", "s", "-1", "1 parsec", "45s,", "inf", "nan", "1e3", "0x10", "99999999999999999999h",
                           "infinity 1s", "1\n2x", "--"})
    BOOST_TEST(!parse_time_span(text), text);
}

BOOST_AUTO_TEST_CASE(owns_a_process_by_the_innermost_unit_of_its_cgroup) {
  const systemd_machine machine;
  BOOST_TEST(machine.owner_by("0::/system.slice/cenote.service") == "system cenote.service");
  BOOST_TEST(machine.owner_by("0::/system.slice/cenote.service/inner") == "system cenote.service");
  BOOST_TEST(machine.owner_by("4:memory:/x\n1:name=systemd:/system.slice/a.service\n0::/") == "system a.service");
  BOOST_TEST(machine.owner_by("0::/user.slice/user-1.slice/user@1.service/app.slice/b.service") == "user b.service");
  BOOST_TEST(machine.owner_by("0::/user.slice/user-1.slice/user@1.service") == "system user@1.service");
}

BOOST_AUTO_TEST_CASE(owns_no_process_of_a_session_or_a_container) {
  const systemd_machine machine;
  BOOST_TEST(!unit_of(8, machine.path));
  for (const char* cgroup : {"", "0::/", "0::/docker/12ab", "garbage", "0::", "1:name=systemd",
                             "0::/user.slice/user-0.slice/session-3.scope",
                             "0::/user.slice/user-1.slice/user@1.service/app.slice/terminal.scope",
                             "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-2.scope"})
    BOOST_TEST(machine.owner_by(cgroup) == "", cgroup);
}

BOOST_AUTO_TEST_CASE(has_the_limit_of_its_file_and_of_the_drop_in_that_comes_last) {
  const systemd_machine machine;
  BOOST_TEST(!machine.limit());
  machine.file("lib/systemd/system/cenote.service", node_service);
  BOOST_TEST((machine.limit() == 45s));
  machine.file("usr/lib/systemd/system/service.d/10-all.conf", "[Service]\nTimeoutStopSec=10");
  BOOST_TEST((machine.limit() == 10s));
  machine.file("etc/systemd/system/cenote.service.d/20-stop.conf", "# longer\n[Service]\nTimeoutStopSec = 2min\n");
  BOOST_TEST((machine.limit() == 120s));
  machine.file("run/systemd/system/cenote.service.d/20-stop.conf", "[Service]\nTimeoutStopSec=1");  // of the same name
  BOOST_TEST((machine.limit() == 120s));
  machine.file("run/systemd/system/cenote.service.d/30.conf",
               "[Unit]\nTimeoutStopSec=2\n[Service]\nTimeoutSec=\\\n 70");
  BOOST_TEST((machine.limit() == 70s));
  machine.file("etc/systemd/system/cenote.service", "[Service]\nTimeoutStopSec=5");  // before the package's
  BOOST_TEST((machine.limit() == 70s));
  machine.file("etc/systemd/system/cenote.service.d/40.conf", "[Service]\nTimeoutStopSec=nonsense\nTimeoutStopSec=0");
  BOOST_TEST((machine.limit() == unlimited_stop));
}

BOOST_AUTO_TEST_CASE(has_nothing_of_a_drop_in_that_is_masked_or_no_file) {
  const systemd_machine machine;
  machine.file("lib/systemd/system/cenote.service", node_service);
  machine.file("lib/systemd/system/cenote.service.d/10.conf", "[Service]\nTimeoutStopSec=5");
  BOOST_TEST((machine.limit() == 5s));
  const fs::path own = machine.path / "etc/systemd/system/cenote.service.d";
  fs::create_directories(own / "30.conf");
  fs::create_symlink("/dev/null", own / "10.conf");
  BOOST_REQUIRE(::mkfifo((own / "20.conf").c_str(), 0600) == 0);
  BOOST_TEST((machine.limit() == 45s));
}

BOOST_AUTO_TEST_CASE(without_a_limit_has_the_managers) {
  const systemd_machine machine;
  machine.file("lib/systemd/system/cenote.service", "[Service]\nExecStart=/usr/bin/cenote node");
  BOOST_TEST((machine.limit() == 90s));
  machine.file("etc/systemd/system.conf", "[Manager]\nDefaultTimeoutStopSec=20s\n");
  BOOST_TEST((machine.limit() == 20s));
  machine.file("etc/systemd/system.conf.d/site.conf", "[Manager]\nDefaultTimeoutStopSec=15\n");
  BOOST_TEST((machine.limit() == 15s));
}

BOOST_AUTO_TEST_CASE(of_a_template_has_the_limit_of_the_template_and_its_own_drop_ins) {
  const systemd_machine machine;
  machine.file("lib/systemd/system/cenote@.service", node_service);
  BOOST_TEST((machine.limit("cenote@a.service") == 45s));
  machine.file("etc/systemd/system/cenote@a.service.d/a.conf", "[Service]\nTimeoutStopSec=50");
  BOOST_TEST((machine.limit("cenote@a.service") == 50s));
  BOOST_TEST((machine.limit("cenote@b.service") == 45s));
}

BOOST_AUTO_TEST_CASE(is_asked_of_systemd_where_that_runs) {
  const systemd_machine machine;
  machine.file("lib/systemd/system/cenote.service", node_service);
  machine.systemctl("cenote.service", "echo 1min 2s");
  BOOST_TEST((machine.limit() == 62s));
  machine.systemctl("cenote.service", "echo infinity");
  BOOST_TEST((machine.limit() == unlimited_stop));
}

BOOST_AUTO_TEST_CASE(is_read_from_files_where_systemd_does_not_answer) {
  const systemd_machine machine;
  machine.file("lib/systemd/system/cenote.service", node_service);
  // The last one takes longer than its 3 s.
  for (const char* answer : {"exit 1", "echo", "echo unset", "kill -9 $$", "echo 9s; exit 4", "exec sleep 600"}) {
    machine.systemctl("cenote.service", answer);
    BOOST_TEST((machine.limit() == 45s), answer);
  }
  fs::remove(machine.path / "usr/bin/systemctl");
  BOOST_TEST((machine.limit() == 45s));
}

BOOST_AUTO_TEST_CASE(is_a_nodes_by_its_name_and_its_command) {
  const systemd_machine machine;
  BOOST_TEST(node_units(machine.path).empty());
  machine.file("lib/systemd/system/cenote-manager.service", "[Service]\nExecStart=/usr/bin/cenote manager\n");
  machine.file("lib/systemd/system/other.service", node_service);
  machine.file("lib/systemd/system/cenote.service", node_service);
  machine.file("etc/systemd/system/cenote-b.service", "[Service]\nExecStart=/opt/cenote \\\n  node --set a=b\n");
  fs::create_symlink("/dev/null", machine.path / "etc/systemd/system/cenote-c.service");  // masked
  machine.file("lib/systemd/system/cenote-c.service", node_service);
  std::string names;
  for (const service_unit& unit : node_units(machine.path)) names += unit.name + " ";
  BOOST_TEST(names == "cenote-b.service cenote.service ");
}

BOOST_AUTO_TEST_SUITE_END()
