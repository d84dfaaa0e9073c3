// Scores from entries on a real server.
#include "services/indexer/backends/shared_scorer.hpp"

#include <boost/test/unit_test.hpp>
#include <map>
#include <string>
#include <vector>

#include "services/indexer/backends/pod_entry.hpp"
#include "tests/support/redis_server.hpp"

namespace cenote::indexer {

namespace {

class scorer_world {
 public:
  scorer_world() {
    counters.is_serving = true;
    facts.set_weights({{"gpu", 1.0}, {"cpu", 0.5}});
    facts.add_size("model", 4);
    scorer = shared_scorer::make(access, processor, facts, counters, 0).value();
  }

  void hold(const std::string& pod, std::uint64_t key, const std::string& tier = "gpu") const {
    server.say({"HSET", std::to_string(key), field_text({.pod = pod, .tier = tier}), ""});
  }
  std::map<std::string, double> score(const std::vector<std::uint64_t>& keys,
                                      const std::vector<std::string_view>& pods = {}) const {
    const auto answer = scorer->score({.model = "model", .block_keys = keys, .pods = pods});
    std::map<std::string, double> found;
    for (const pod_score& each : answer.scores) found.emplace(each.pod, each.score);
    return found;
  }

  test::redis_server server;
  redis::server_access access{.address = {.path = server.socket(), .place = {}}};
  token_processor processor{key_chain::fnv64_cbor, ""};
  shared_facts facts;
  shared_counters counters;
  std::unique_ptr<shared_scorer> scorer;
};

using score_map = std::map<std::string, double>;

}  // namespace

BOOST_AUTO_TEST_SUITE(shared_scorers)

BOOST_AUTO_TEST_CASE(leading_blocks_count_by_their_best_tier) {
  scorer_world all;
  for (const std::uint64_t key : {1, 2, 3}) all.hold("a", key);
  all.hold("b", 1, "cpu");
  all.hold("b", 3);  // behind a hole
  all.hold("a", 2, "cpu");
  all.hold("c", 2);
  BOOST_TEST((all.score({1, 2, 3, 4}) == score_map{{"a", 3.0}, {"b", 0.5}}));
  BOOST_TEST((all.score({1, 2, 3}, {"b", "c"}) == score_map{{"b", 0.5}}));
  BOOST_TEST((all.score({4, 1}) == score_map{}));
}

BOOST_AUTO_TEST_CASE(tiers_under_the_names_that_engines_give_them_are_their_media) {
  scorer_world all;
  all.hold("a", 1, "cpu_pinned");
  all.hold("b", 1, "cpu_tier2");
  all.hold("b", 2, "cpu");
  BOOST_TEST((all.score({1, 2}) == score_map{{"a", 0.5}, {"b", 1.0}}));
}

BOOST_AUTO_TEST_CASE(prompts_of_several_groups_of_keys_are_looked_at_to_their_end) {
  scorer_world all;
  std::vector<std::uint64_t> keys;
  for (std::uint64_t key = 1; key <= 300; ++key) keys.push_back(key);
  for (std::uint64_t key = 1; key <= 300; ++key) all.hold("a", key);
  for (std::uint64_t key = 1; key <= 129; ++key) all.hold("b", key);
  BOOST_TEST((all.score(keys) == score_map{{"a", 300.0}, {"b", 129.0}}));
}

BOOST_AUTO_TEST_CASE(tiers_without_a_weight_make_no_score_and_hidden_pods_are_left_out) {
  scorer_world all;
  all.hold("a", 1, "tape");
  all.hold("b", 1);
  all.hold("c", 1);
  all.facts.set_marks({{"model", {"b"}}}, {"c"});
  BOOST_TEST((all.score({1}) == score_map{{"b", 1.0}}));
  const std::vector<std::uint64_t> keys{1};
  const auto answer = all.scorer->score({.model = "model", .block_keys = keys});
  BOOST_REQUIRE(answer.degraded.size() == 1U);
  BOOST_TEST(answer.degraded.front() == "b");
}

BOOST_AUTO_TEST_CASE(sizes_that_another_indexer_has_written_are_known) {
  scorer_world all;
  all.server.say({"SADD", "engine:model:foreign", "16", "32", "x", "0", "99999999999"});
  BOOST_TEST(all.scorer->block_tokens_of({.model = "foreign"}) == 16U);
  BOOST_TEST(all.scorer->block_tokens_of({.model = "model"}) == 4U);
  BOOST_TEST(all.scorer->block_tokens_of({.model = "none"}) == 0U);
}

BOOST_AUTO_TEST_CASE(while_the_server_is_away_answers_are_empty_and_come_back_with_it) {
  scorer_world all;
  all.hold("a", 1);
  BOOST_TEST((all.score({1}) == score_map{{"a", 1.0}}));
  all.server.kill();
  for (int i = 0; i < 20; ++i) BOOST_TEST(all.score({1}).empty());
  BOOST_TEST(all.counters.unanswered == 20U);
  BOOST_TEST(all.counters.failed_questions < 20U);
  all.server.start();
  all.hold("a", 1);
  while (all.score({1}).empty()) {
  }
  all.counters.is_serving = false;
  BOOST_TEST(all.score({1}).empty());
}

BOOST_AUTO_TEST_CASE(a_server_that_stands_still_ends_a_question_at_its_deadline) {
  scorer_world all;
  all.hold("a", 1);
  BOOST_TEST(!all.score({1}).empty());
  all.server.freeze();
  BOOST_TEST(all.score({1}).empty());
  all.server.thaw();
  while (all.score({1}).empty()) {
  }
}

BOOST_AUTO_TEST_CASE(a_flood_of_fields_is_bounded) {
  scorer_world all;
  std::vector<std::string> command{"HSET", "1"};
  for (int i = 0; i < 3000; ++i) {
    command.push_back(field_text({.pod = "pod" + std::to_string(i), .tier = "gpu"}));
    command.emplace_back();
  }
  all.server.say(command);
  BOOST_TEST(all.score({1}).size() == 3000U);
  for (int round = 0; round < 8; ++round) {
    for (std::size_t i = 2; i < command.size(); i += 2) {
      command[i] = field_text({.pod = std::to_string(round) + "pod" + std::to_string(i), .tier = "gpu"});
    }
    all.server.say({"DEL", "1"});
    all.server.say(command);
    BOOST_TEST(all.score({1}).size() == 3000U);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
