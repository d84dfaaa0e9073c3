// The conditions under which a manager starts, and asks for accounts.
#include "config/manager_rules.hpp"

#include <boost/test/unit_test.hpp>
#include <string>
#include <vector>

#include "tests/unit/config/config_support.hpp"

using namespace cenote;
using namespace cenote::config;
using namespace cenote::test;

namespace {

std::string manager_refusal(const std::vector<std::string>& sets) {
  const auto checked = check_manager(good(load_sets(sets)));
  return checked ? "" : checked.error().message();
}

bool asks_for_accounts(const std::vector<std::string>& sets) {
  return needs_accounts(good(load_sets(sets)).manager);
}

const std::string outside = "manager.host=10.0.0.7";

}  // namespace

BOOST_AUTO_TEST_SUITE(manager_rules)

BOOST_AUTO_TEST_CASE(off_loopback_a_manager_needs_tls_or_a_trusted_network) {
  BOOST_TEST(manager_refusal({}) == "");
  BOOST_TEST(contains(manager_refusal({outside}), "--set: manager.host"));
  BOOST_TEST(contains(manager_refusal({outside, "manager.auth=on"}), "manager.tls_cert"));
  BOOST_TEST(manager_refusal({outside, "manager.trusted_network=true"}) == "");
  BOOST_TEST(manager_refusal({outside, "manager.tls_cert=/c", "manager.tls_key=/k"}) == "");
}

BOOST_AUTO_TEST_CASE(off_loopback_calls_without_accounts_need_certificates_or_a_trusted_network) {
  const std::string off = "manager.auth=off";
  BOOST_TEST(manager_refusal({off}) == "");
  BOOST_TEST(
      contains(manager_refusal({outside, off, "manager.tls_cert=/c", "manager.tls_key=/k"}), "--set: manager.auth"));
  BOOST_TEST(manager_refusal({outside, off, "manager.tls_cert=/c", "manager.tls_key=/k", "manager.tls_client_ca=/a"}) ==
             "");
  BOOST_TEST(manager_refusal({outside, off, "manager.trusted_network=true"}) == "");
}

BOOST_AUTO_TEST_CASE(others_are_sent_to_a_host_without_a_port) {
  for (const std::string host : {"", "10.0.0.7", "fd00::7", "manager-0.kv.svc", "m1"}) {
    BOOST_TEST(manager_refusal({"manager.advertise=" + host}) == "", host);
  }
  for (const std::string host : {"0.0.0.0", "::", "*", "m1:6381", "a b", "http://m1", "[::1]"}) {
    BOOST_TEST(contains(manager_refusal({"manager.advertise=" + host}), "--set: manager.advertise"), host);
  }
}

BOOST_AUTO_TEST_CASE(accounts_are_needed_off_loopback_unless_a_key_decides) {
  BOOST_TEST(!asks_for_accounts({}));
  BOOST_TEST(!asks_for_accounts({"manager.host=::1"}));
  BOOST_TEST(asks_for_accounts({outside}));
  BOOST_TEST(asks_for_accounts({"manager.host=0.0.0.0"}));
  BOOST_TEST(asks_for_accounts({"manager.auth=on"}));
  BOOST_TEST(!asks_for_accounts({outside, "manager.auth=off"}));
  refused(load_sets({"manager.auth=maybe"}), "manager.auth");
}

BOOST_AUTO_TEST_CASE(a_store_is_a_folder_a_server_or_memory) {
  for (const std::string store : {"rocksdb", "rocksdb:/d", "memory", "redis://h", "valkey://h:1/2", "rediss://h",
                                  "valkeys://h?ca=/c", "unix:///s?prefix=p"}) {
    BOOST_TEST(manager_refusal({"manager.store=" + store}) == "");
  }
  for (const std::string store : {"", "rocksdb:d", "http://u:hush@h", "rediss:/u:hush@h"}) {
    BOOST_TEST(contains(manager_refusal({"manager.store=" + store}), "--set: manager.store"), store);
    BOOST_TEST(!contains(manager_refusal({"manager.store=" + store}), "hush"));
  }
}

BOOST_AUTO_TEST_CASE(a_password_and_an_id_are_for_a_server) {
  const std::string server = "manager.store=redis://h", file = "manager.store_auth_file=/f";
  BOOST_TEST(manager_refusal({server, file, "manager.id=a.b_c-9"}) == "");
  BOOST_TEST(contains(manager_refusal({file}), "manager.store_auth_file"));
  for (const std::string id : {"", "a:b", "a b", "{a}"}) {
    BOOST_TEST(contains(manager_refusal({server, "manager.id=" + id}), "manager.id"), id);
  }
  BOOST_TEST(contains(manager_refusal({server, "manager.id=" + std::string(65, 'x')}), "manager.id"));
}

BOOST_AUTO_TEST_CASE(a_plug_in_has_a_name_of_a_storage_type_and_a_program) {
  BOOST_TEST(manager_refusal({R"(manager.plugins=["mooncake=/p a=b","tairmempool_ssd=q","dummy=r"])"}) == "");
  for (const char* list : {R"(["nfs=/p"])", R"(["mooncake"])", R"(["mooncake="])", R"(["mooncake= "])", R"(["=/p"])",
                           R"([""])", R"(["mooncake=/p","mooncake=/q"])"}) {
    BOOST_TEST(contains(manager_refusal({std::string("manager.plugins=") + list}), "manager.plugins"), list);
  }
  BOOST_TEST((split_plugin("a=b=c") == std::pair<std::string_view, std::string_view>("a", "b=c")));
  BOOST_TEST((split_plugin("a") == std::pair<std::string_view, std::string_view>("a", "")));
}

BOOST_AUTO_TEST_SUITE_END()
