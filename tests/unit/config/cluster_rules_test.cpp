#include "config/cluster_rules.hpp"

#include <sys/stat.h>

#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/unit/config/config_support.hpp"

using namespace cenote;
using namespace cenote::config;
using namespace cenote::test;

namespace {

std::string refusal_of(std::vector<std::string> sets) {
  sets.insert(sets.begin(), "cluster.name=a");
  const auto loaded = load_sets(sets);
  return loaded ? "" : loaded.error().message();
}

/// A file of its own, with a mode; removed at the end.
struct secret_file {
  explicit secret_file(const std::string& text, mode_t mode = 0600)
      : path(std::filesystem::temp_directory_path() / ("cenote-secret-" + std::to_string(::getpid()))) {
    std::ofstream(path) << text;
    ::chmod(path.c_str(), mode);
  }
  secret_file(const secret_file&) = delete;
  secret_file& operator=(const secret_file&) = delete;
  ~secret_file() { std::filesystem::remove(path); }

  std::filesystem::path path;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(cluster_rules)

BOOST_AUTO_TEST_CASE(a_named_node_on_loopback_needs_nothing_else) {
  BOOST_TEST(refusal_of({}) == "");
  BOOST_TEST(refusal_of({"cluster.listen=127.0.0.1:7000", "cluster.seeds=[\"b.example:7000\"]"}) == "");
}

BOOST_AUTO_TEST_CASE(off_loopback_it_needs_a_secret_and_the_word_that_the_network_is_trusted) {
  const std::string listen = "cluster.listen=10.0.0.1:7000";
  const std::string secret = "cluster.secret_file=/etc/cenote/secret";
  const std::string trusted = "cluster.trusted_network=true";
  BOOST_TEST(contains(refusal_of({listen}), "cluster.secret_file"));
  BOOST_TEST(contains(refusal_of({listen, secret}), "cluster.trusted_network"));
  BOOST_TEST(contains(refusal_of({listen, trusted}), "cluster.secret_file"));
  BOOST_TEST(refusal_of({listen, secret, trusted}) == "");
  // A name that only looks like loopback, and what lets UCX listen elsewhere.
  BOOST_TEST(contains(refusal_of({"cluster.listen=127.evil.example:7000"}), "cluster.trusted_network"));
  BOOST_TEST(contains(refusal_of({"cluster.transport=rdma"}), "cluster.trusted_network"));
  BOOST_TEST(contains(refusal_of({"cluster.ucx=[\"UCX_NET_DEVICES=all\"]"}), "cluster.trusted_network"));
  BOOST_TEST(contains(refusal_of({"cluster.ucx=[\"UCX_TLS=all\"]"}), "cluster.trusted_network"));
  for (const auto* each : {"UCX_=1", "UCX_LOG_LEVEL", "PATH=x"})
    BOOST_TEST(contains(refusal_of({std::string("cluster.ucx=[\"") + each + "\"]"}), "UCX_KEY=value"));
  BOOST_TEST(refusal_of({"cluster.transport=rdma", secret, trusted}) == "");
}

BOOST_AUTO_TEST_CASE(an_ipv6_address_is_refused_with_the_reason) {
  BOOST_TEST(contains(refusal_of({"cluster.listen=[::1]:7000"}), "cluster.listen"));
  BOOST_TEST(contains(refusal_of({"cluster.listen=[::1]:7000"}), "does not connect over IPv6"));
  BOOST_TEST(contains(refusal_of({"cluster.listen=[::ffff:127.0.0.1]:7000"}), "does not connect over IPv6"));
  BOOST_TEST(contains(refusal_of({"cluster.seeds=[\"[fd00::2]:7000\"]"}), "cluster.seeds"));
  BOOST_TEST(contains(refusal_of({"cluster.seeds=[\"[fd00::2]:7000\"]"}), "does not connect over IPv6"));
}

BOOST_AUTO_TEST_CASE(what_cannot_work_is_refused_with_its_key) {
  BOOST_TEST(contains(refusal_of({"cluster.listen=0.0.0.0:7000"}), "cluster.listen"));
  BOOST_TEST(contains(refusal_of({"cluster.listen=off"}), "cluster.listen"));
  BOOST_TEST(contains(refusal_of({"cluster.name=a b"}), "cluster.name"));
  BOOST_TEST(contains(refusal_of({"cluster.id=" + std::string(65, 'x')}), "cluster.id"));
  BOOST_TEST(contains(refusal_of({"cluster.seeds=[\"10.0.0.2\"]"}), "cluster.seeds"));
  BOOST_TEST(contains(refusal_of({"cluster.seeds=[\"10.0.0.2:0\"]"}), "cluster.seeds"));
  BOOST_TEST(contains(refusal_of({"cluster.beat=500ms"}), "cluster.suspect_after"));
  BOOST_TEST(contains(refusal_of({"cluster.gone_after=500ms"}), "cluster.gone_after"));
  BOOST_TEST(contains(refusal_of({"cluster.ports=7001-7003"}), "cluster.ports"));
  BOOST_TEST(contains(refusal_of({"cluster.ucx=[TLS=tcp]"}), "cluster.ucx"));
  const auto nameless = load_sets({"cluster.seeds=[\"10.0.0.2:7000\"]"});
  BOOST_REQUIRE(!nameless);
  BOOST_TEST(contains(nameless.error().message(), "cluster.name"));
}

BOOST_AUTO_TEST_CASE(ports_are_two_numbers_with_room_between) {
  BOOST_TEST((*parse_ports("7001-7020") == std::pair<std::uint16_t, std::uint16_t>(7001, 7020)));
  BOOST_TEST((*parse_ports("") == std::pair<std::uint16_t, std::uint16_t>(0, 0)));
  for (const char* const wrong : {"7001", "7001-", "-7020", "7020-7001", "0-100", "65530-65540", "a-b", "7001-7020x"})
    BOOST_TEST(!parse_ports(wrong), wrong);
}

BOOST_AUTO_TEST_CASE(a_secret_is_read_without_the_newline_at_its_end) {
  const secret_file file("0123456789abcdef\n");
  const auto secret = read_secret(file.path);
  BOOST_REQUIRE(secret.has_value());
  BOOST_TEST(secret->size() == 16U);
}

BOOST_AUTO_TEST_CASE(without_a_file_all_nodes_of_a_user_have_one_secret_which_nobody_else_may_read) {
  std::string folder = "/tmp/cenote-test.XXXXXX";
  BOOST_REQUIRE(::mkdtemp(folder.data()) != nullptr);
  ::setenv("STATE_DIRECTORY", folder.c_str(), 1);
  BOOST_TEST(check_cluster_secret({}).has_value());
  BOOST_TEST(!std::filesystem::exists(*secret_path({})), "a check makes none");
  const auto first = cluster_secret({});
  BOOST_TEST(check_cluster_secret({}).has_value());
  const auto second = cluster_secret({});
  BOOST_REQUIRE(first.has_value());
  BOOST_TEST(first->size() == 64U);
  BOOST_TEST((*first == *second));
  const std::string file = *secret_path({});
  BOOST_TEST(file == folder + "/cluster-secret");
  struct stat facts {};
  BOOST_TEST(::stat(file.c_str(), &facts) == 0);
  BOOST_TEST((facts.st_mode & 0777) == 0600U);
  ::chmod(file.c_str(), 0644);
  BOOST_TEST(contains(cluster_secret({}).error().message(), "chmod 600"));
  BOOST_TEST(check_cluster_secret({}).error().message() == cluster_secret({}).error().message());
  cluster_section named;
  named.secret_file = "/does/not/exist";
  BOOST_TEST(*secret_path(named) == named.secret_file);
  BOOST_TEST(!cluster_secret(named).has_value());
  std::filesystem::remove_all(folder);
  ::setenv("STATE_DIRECTORY", "/proc/none", 1);
  BOOST_TEST(contains(cluster_secret({}).error().message(), "cluster.secret_file"));
  BOOST_TEST(contains(check_cluster_secret({}).error().message(), "cluster.secret_file: name one"));
  ::unsetenv("STATE_DIRECTORY");
}

BOOST_AUTO_TEST_CASE(a_secret_that_others_may_read_or_that_is_too_short_or_missing_is_refused) {
  const auto why_not = [](const std::string& path) { return read_secret(path).error().message(); };
  BOOST_TEST(contains(why_not(secret_file("0123456789abcdef", 0640).path), "chmod 600"));
  BOOST_TEST(contains(why_not(secret_file("too short\n").path), "16 to 4096"));
  BOOST_TEST(contains(why_not(secret_file(std::string(5000, 'x')).path), "16 to 4096"));
  BOOST_TEST(contains(why_not("/does/not/exist"), "cannot be read"));
  BOOST_TEST(contains(why_not("/tmp"), "regular"));
  BOOST_TEST(why_not("/does/not/exist").starts_with("the cluster's secret (cluster.secret_file): "));
  BOOST_TEST(read_secret("/does/not/exist", "the token").error().message().starts_with("the token: "));
}

BOOST_AUTO_TEST_SUITE_END()
