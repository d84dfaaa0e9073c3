// Cases as data: publishers, their events, and the scores that follow.
#include <boost/test/unit_test.hpp>
#include <map>

#include "tests/support/indexer_world.hpp"

namespace cenote::indexer {

namespace {

using test::json;

struct opened_case {
  case_engine engine;
  publisher_id number = 0;
};

medium_weights weights_of(const json& table, holder_table& holders) {
  medium_weights weights;
  weights.of_medium = {};
  for (const auto& [name, weight] : table.items()) weights.of_medium[*holders.medium_of(name)] = weight;
  return weights;
}

void run_case(const json& one) {
  const std::string name = one["name"];
  indexer_world world;
  if (one.contains("weights")) world.questions.set_weights(weights_of(one["weights"], world.index.holders()));
  std::map<std::string, opened_case> publishers;
  for (const auto& [key, facts] : one["publishers"].items()) {
    const case_engine engine(facts);
    publishers.emplace(key, opened_case{engine, world.open(engine)});
  }
  std::size_t number = 0;
  for (const json& step : one["steps"]) {
    const std::string place = name + ", step " + std::to_string(++number);
    if (step.contains("publish")) {
      const opened_case& publisher = publishers.at(step["publish"]);
      world.publish(publisher.number, publisher.engine, step["events"].get<std::vector<json>>(),
                    step.value("dp_rank", 0U));
    } else if (step.contains("restart")) {
      world.blocks.clear(publishers.at(step["restart"]).number);
    } else if (step.contains("close")) {
      world.blocks.close(publishers.at(step["close"]).number);
    } else {
      check_scores(world.scores(step["score"]), step["expect"], place);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(score_cases)

BOOST_AUTO_TEST_CASE(every_case_has_its_scores) {
  for (const json& file : test::case_files("scores.json", "indexer/scores.json")) {
    for (const json& one : file["cases"]) run_case(one);
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
