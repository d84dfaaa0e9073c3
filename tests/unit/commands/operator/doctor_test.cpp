#include "commands/operator/doctor.hpp"

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <optional>

#include "core/checksum.hpp"
#include "core/copy_routines.hpp"
#include "core/machine_decisions.hpp"
#include "core/unique_fd.hpp"

namespace {

using namespace cenote;

const finding& about(const std::vector<finding>& findings, const std::string& subject) {
  const auto found = std::ranges::find(findings, subject, &finding::subject);
  BOOST_REQUIRE((found != findings.end()));
  return *found;
}

config::node_config node_of(std::uint64_t capacity) {
  config::node_config config = config::default_config();
  config.dram.capacity = capacity;
  return config;
}

config::node_config small_node() {
  return node_of(1 << 20);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(the_doctor)

BOOST_AUTO_TEST_CASE(finds_every_subject_on_this_machine) {
  const auto findings = examine(small_node());
  for (const auto* subject :
       {"kernel", "memory", "cgroup", "memlock", "open files", "file size", "address space", "io_uring", "copies",
        "populate", "huge pages", "NUMA", "PID namespace", "user namespace"}) {
    BOOST_TEST(!about(findings, subject).state.empty());
  }
}

BOOST_AUTO_TEST_CASE(fails_a_capacity_that_no_machine_has_and_says_what_to_change) {
  const auto findings = examine(node_of(1ULL << 60));
  const auto& memory = about(findings, "memory");
  BOOST_TEST((memory.severity == finding::level::fail));
  BOOST_TEST(memory.remedy.find("dram.capacity") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(has_a_remedy_with_every_warning) {
  for (const auto& each : examine(node_of(1ULL << 60), "/nonexistent")) {
    if (each.severity != finding::level::ok) BOOST_TEST(!each.remedy.empty(), each.subject);
  }
}

BOOST_AUTO_TEST_CASE(shows_what_a_node_has_measured_of_copies) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("doctor-" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  machine_decisions decisions;
  decisions.judge(copy_case::read, {{memcpy_number, 2e9}, {copy_routines().back().number, 5e9}});
  decisions.judge(copy_case::checksum, {{1, 8e9}});
  BOOST_REQUIRE(save_decisions(decisions_file(folder), decisions, machine_identity()).has_value());
  config::node_config node = small_node();
  node.node.runtime_dir = folder;
  const auto kept = examine(node);
  BOOST_TEST(about(kept, "copies").state == "read: " + copy_routines().back().name + ", 2.50 of memcpy; checksum: " +
                                                std::string(checksum_variants().front().name));
  std::filesystem::remove_all(folder);
}

BOOST_AUTO_TEST_CASE(recommends_to_touch_memory_ahead) {
  config::node_config node = small_node();
  node.dram.populate = false;
  const auto off = examine(node);
  BOOST_TEST((about(off, "populate").severity == finding::level::warn));
  BOOST_TEST(about(off, "populate").remedy.find("dram.populate = true") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(says_how_huge_pages_are_switched_on_unless_nobody_asks_for_them) {
  const auto root = std::filesystem::temp_directory_path() / ("cenote-doctor-test-" + std::to_string(::getpid()));
  const auto folder = root / "sys/kernel/mm/transparent_hugepage";
  std::filesystem::create_directories(folder);
  const auto pages = [&](const std::string& offered, bool wanted) {
    std::ofstream(folder / "shmem_enabled") << offered << '\n';
    config::node_config node = small_node();
    node.dram.huge_pages = wanted ? config::huge_pages::automatic : config::huge_pages::off;
    return about(examine(node, root), "huge pages");
  };
  BOOST_TEST((pages("always within_size [advise] never deny force", true).severity == finding::level::ok));
  const auto never = pages("always within_size advise [never] deny force", true);
  BOOST_TEST((never.severity == finding::level::warn));
  BOOST_TEST(never.remedy.find("echo advise > ") != std::string::npos);
  BOOST_TEST((pages("always within_size advise [never] deny force", false).severity == finding::level::ok));
  std::filesystem::remove_all(root);
}

BOOST_AUTO_TEST_CASE(prints_a_line_each_and_the_remedy_below) {
  const auto text = findings_text({{finding::level::warn, "memlock", "64 KiB", "raise it"}});
  BOOST_TEST(text.find("warn  memlock         64 KiB\n") == 0U);
  BOOST_TEST(text.find("-> raise it\n") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(a_cluster_is_looked_at_when_the_node_has_a_name) {
  const auto level_of = [](const config::cluster_section& cluster, std::string_view subject) {
    config::node_config node = small_node();
    node.cluster = cluster;
    for (const finding& each : examine(node)) {
      if (each.subject == subject) return std::optional(each.severity);
    }
    return std::optional<finding::level>();
  };
  config::cluster_section cluster = config::default_config().cluster;
  BOOST_TEST(!level_of(cluster, "cluster address"));
  cluster.name = "a";
  cluster.listen = endpoint{"127.0.0.1", 7000};
  BOOST_TEST((level_of(cluster, "cluster address") == finding::level::ok));
  BOOST_TEST((level_of(cluster, "UCX") == finding::level::ok));
  cluster.listen = endpoint{"192.0.2.1", 7000};  // of documentation alone: no machine has it
  BOOST_TEST((level_of(cluster, "cluster address") == finding::level::fail));
  cluster.listen = endpoint{"::1", 7000};
  BOOST_TEST((level_of(cluster, "cluster address") == finding::level::fail));
  cluster.listen = endpoint{"127.0.0.1", 0};
  BOOST_TEST((level_of(cluster, "cluster ports") == finding::level::ok));
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> cluster.listen->port;  // the kernel may give it away
  BOOST_TEST((level_of(cluster, "cluster ports") == finding::level::warn));
  const unique_fd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in place{};
  place.sin_family = AF_INET;
  place.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof place;
  BOOST_REQUIRE(::bind(taken.get(), reinterpret_cast<const sockaddr*>(&place), size) == 0);
  BOOST_REQUIRE(::listen(taken.get(), 1) == 0);
  BOOST_REQUIRE(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&place), &size) == 0);
  cluster.listen->port = ntohs(place.sin_port);
  BOOST_TEST((level_of(cluster, "cluster ports") == finding::level::warn));
  config::node_config node = small_node();
  node.metrics.listen = cluster.listen;
  BOOST_TEST((about(examine(node), "metrics port").severity == finding::level::warn));
  cluster.secret_file = "/does/not/exist";
  BOOST_TEST((level_of(cluster, "cluster secret") == finding::level::fail));
}

BOOST_AUTO_TEST_SUITE_END()
