// Tables of ratios, tables of publishers, and what an indexer refuses to start with.
#include "config/indexer_rules.hpp"

#include <boost/test/unit_test.hpp>
#include <map>
#include <string>
#include <vector>

#include "tests/unit/config/config_support.hpp"

using namespace cenote;
using namespace cenote::config;
using namespace cenote::test;

namespace {

using weights = std::map<std::string, double>;

std::string start_refusal(const std::vector<std::string>& sets) {
  const auto checked = check_indexer(good(load_sets(sets)));
  return checked ? "" : checked.error().message();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(indexer_rules)

BOOST_AUTO_TEST_CASE(a_table_of_ratios_is_read_in_each_form) {
  const weights expected{{"gpu", 1.0}, {"tape", 0.25}};
  BOOST_TEST((good(load_text("[scoring]\nweights = {gpu = 1, tape = 0.25}\n")).scoring.weights == expected));
  BOOST_TEST((good(load_text("[scoring.weights]\ngpu = 1.0\ntape = 0.25\n")).scoring.weights == expected));
  BOOST_TEST((good(load_sets({"scoring.weights={gpu = 1.0, tape = 0.25}"})).scoring.weights == expected));
  BOOST_TEST((good(load_sets({R"(scoring.weights={"gpu": 1.0, "tape": 0.25})"})).scoring.weights == expected));
  BOOST_TEST((good(load_environment({{"CENOTE_SCORING__WEIGHTS", R"({"gpu": 1, "tape": 0.25})"}})).scoring.weights ==
              expected));
  BOOST_TEST(good(load_sets({"scoring.weights={}"})).scoring.weights.empty());
  BOOST_TEST(default_config().scoring.weights.at("disk") == 0.6);
}

BOOST_AUTO_TEST_CASE(a_table_of_ratios_survives_being_shown_and_read_again) {
  const auto config = good(load_sets({R"(scoring.weights={"a b": 0.5, gpu: 2})"}));
  const auto again = good(load_text(to_toml(effective(config))));
  BOOST_TEST((again.scoring.weights == config.scoring.weights));
  BOOST_TEST((good(load_running(running_text(config))).scoring.weights == config.scoring.weights));
}

BOOST_AUTO_TEST_CASE(what_is_no_table_of_ratios_is_refused_by_name) {
  refused(load_sets({"scoring.weights=1"}), "must be a table of numbers such as {gpu = 1.0, cpu = 0.8}, 0 to 1000");
  refused(load_sets({"scoring.weights={gpu = -1}"}), "scoring.weights");
  refused(load_sets({"scoring.weights={gpu = 1001}"}), "0 to 1000");
  refused(load_sets({"scoring.weights={gpu = \"much\"}"}), "scoring.weights");
  refused(load_text("[scoring.weights.gpu]\nx = 1\n"), "scoring.weights");
  refused(load_sets({"scoring.weigths={gpu = 1}"}), "did you mean `scoring.weights`?");
}

BOOST_AUTO_TEST_CASE(publishers_are_tables_by_name) {
  const auto config =
      good(load_text("[publishers.a]\nendpoint = \"tcp://10.0.0.7:5557\"\nnode = \"n1\"\n"
                     "[publishers.\"b c\"]\nendpoint = \"tcp://10.0.0.8:5557\"\nclear = \"all\"\n"));
  BOOST_TEST(config.publishers.size() == 2U);
  BOOST_TEST(config.publishers.at("a").node == "n1");
  BOOST_TEST((config.publishers.at("b c").clear == cleared_media::all));
  BOOST_TEST(check_indexer(config).has_value());
  refused(load_text("[publishers.a]\nendpiont = \"x\"\n"), "did you mean `publishers.a.endpoint`?");
}

BOOST_AUTO_TEST_CASE(an_indexer_refuses_what_it_cannot_do) {
  BOOST_TEST(start_refusal({}) == "");
  BOOST_TEST(contains(start_refusal({"publishers.a.pod=x"}), "publisher `a` needs an endpoint"));
  BOOST_TEST(contains(start_refusal({"publishers.a.endpoint=tcp://h:1", "publishers.a.pod=" + std::string(257, 'x')}),
                      "at most 256 bytes"));
  BOOST_TEST(contains(start_refusal({"indexer.tls_cert=/c"}), "set both"));
  BOOST_TEST(contains(start_refusal({"indexer.tls_key=/k"}), "set both"));
  BOOST_TEST(contains(start_refusal({"indexer.tls_ca=/a"}), "needs indexer.tls_cert"));
  BOOST_TEST(contains(start_refusal({"indexer.listen=0.0.0.0:8790"}), "--set: indexer.listen"));
  BOOST_TEST(start_refusal({"indexer.listen=0.0.0.0:8790", "indexer.trusted_network=true"}) == "");
  BOOST_TEST(start_refusal({"indexer.listen=0.0.0.0:8790", "indexer.token_file=/t"}) == "");
  BOOST_TEST(start_refusal({"indexer.listen=localhost:8790"}) == "");
  BOOST_TEST(contains(start_refusal({"indexer.grpc=0.0.0.0:50051"}), "--set: indexer.grpc"));
  BOOST_TEST(start_refusal({"indexer.grpc=0.0.0.0:50051", "indexer.trusted_network=true"}) == "");
  BOOST_TEST(start_refusal({"indexer.grpc=off"}) == "");
}

BOOST_AUTO_TEST_CASE(what_is_for_a_tokenizer_of_its_own_needs_a_command) {
  BOOST_TEST(start_refusal({"tokenizer.socket=/s"}) == "");
  for (const std::string each : {"tokenizer.models=[\"m=/m\"]", "tokenizer.directories=[/m]", "tokenizer.hub=true"}) {
    BOOST_TEST(contains(start_refusal({each}), "needs tokenizer.command"));
    BOOST_TEST(start_refusal({each, "tokenizer.command=cenote-tokenizer"}) == "");
  }
  for (const std::string each : {"m", "=/m", "m="}) {
    BOOST_TEST(contains(start_refusal({"tokenizer.command=c", "tokenizer.models=[\"" + each + "\"]"}), "NAME=PATH"));
  }
  BOOST_TEST(start_refusal({"tokenizer.command=c", "tokenizer.models=[\"a=b=/m\"]"}) == "");
}

BOOST_AUTO_TEST_CASE(a_shared_index_needs_its_server_and_keys_that_others_make_too) {
  const std::string redis = "index.backend=redis";
  const std::string url = "index.url=redis://a:1";
  BOOST_TEST(start_refusal({redis, url, "index.key=fnv64_cbor"}).empty());
  BOOST_TEST(start_refusal({redis, url, "index.seed=7"}).empty());
  BOOST_TEST(start_refusal({redis, url}).find("index.key") != std::string::npos);
  BOOST_TEST(start_refusal({redis, "index.key=fnv64_cbor"}).find("index.url") != std::string::npos);
  BOOST_TEST(start_refusal({redis, "index.key=fnv64_cbor", "index.url=rediss://a:1"}).empty());
  BOOST_TEST(start_refusal({url}).find("index.backend") != std::string::npos);
  BOOST_TEST(start_refusal({"index.auth_file=/a"}).find("index.backend") != std::string::npos);
  BOOST_TEST(start_refusal({"index.block_tokens=16"}).empty());
}

BOOST_AUTO_TEST_SUITE_END()
