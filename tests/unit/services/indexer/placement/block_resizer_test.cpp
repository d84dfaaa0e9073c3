// One size of blocks for all models: engines' longer blocks are cut, shorter ones are joined.
#include "services/indexer/placement/block_resizer.hpp"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <map>
#include <random>
#include <set>

#include "tests/support/indexer_world.hpp"
#include "tests/support/step_cost.hpp"

namespace cenote::indexer {

namespace {

using test::json;

constexpr std::size_t whole = 16;  // tokens of a block of the index

json removed_blocks(const std::string& prompt, std::size_t first, std::size_t end, const std::string& medium = "GPU") {
  return removed(prompt, {{"blocks", {first, end}}, {"medium", medium}});
}

case_engine engine_of(std::size_t block_tokens, const std::string& pod = "10.0.0.1:8000") {
  case_engine made;
  made.pod = pod;
  made.block_tokens = block_tokens;
  return made;
}

double score(indexer_world& world, const std::string& prompt, const std::string& pod = "10.0.0.1:8000") {
  const auto scores = world.scores({{"of", prompt}});
  const auto found = scores.find(pod);
  return found == scores.end() ? 0 : found->second;
}

/// An index with blocks of one size, and an engine.
struct sized_world {
  explicit sized_world(std::size_t engine_tokens) : engine(engine_of(engine_tokens)), number(world.open(engine)) {}

  indexer_world world{std::size_t{32} << 20, whole};
  case_engine engine;
  publisher_id number;
};

/// An engine and all that it has, block by block.
struct modelled_engine {
  explicit modelled_engine(std::size_t block_tokens)
      : engine(engine_of(block_tokens, "10.0.0." + std::to_string(block_tokens) + ":8000")) {}

  [[nodiscard]] bool has(std::uint64_t hash, const std::string& medium) const {
    const auto found = counts.find({hash, medium});
    return found != counts.end() && found->second > 0;
  }
  [[nodiscard]] bool has(std::uint64_t hash) const { return has(hash, "GPU") || has(hash, "CPU"); }
  /// The score of a prompt by this model: whole blocks of the engine and of the index, each by its best medium.
  [[nodiscard]] double truth(const std::vector<std::uint32_t>& tokens) const {
    const auto hashes = engine.hashes_of(tokens, json::object());
    const std::size_t parts = std::max<std::size_t>(whole / engine.block_tokens, 1);
    const auto cuts = static_cast<double>(std::max<std::size_t>(engine.block_tokens / whole, 1));
    double sum = 0;
    for (std::size_t i = 0; i + parts <= hashes.size(); i += parts) {
      const std::span<const std::uint64_t> block = std::span(hashes).subspan(i, parts);
      const auto is_in = [&](const std::string& medium) {
        return std::ranges::all_of(block, [&](std::uint64_t hash) { return has(hash, medium); });
      };
      if (is_in("GPU")) {
        sum += cuts;
      } else if (is_in("CPU")) {
        sum += 0.8 * cuts;
      } else {
        break;
      }
    }
    return sum;
  }

  case_engine engine;
  publisher_id publisher = 0;
  std::map<std::pair<std::uint64_t, std::string>, unsigned> counts;  ///< stores of a hash in a medium
  std::set<std::uint64_t> tokened;                                   ///< hashes that had tokens
};

/// Random events of one engine, applied to the index and to the model.
class random_events {
 public:
  random_events(indexer_world& world, std::uint64_t seed) : world_(world), random_(seed) {}

  void step(modelled_engine& one) {
    const std::string prompt = random_prompt();
    const auto hashes = one.engine.hashes_of(tokens_of(prompt), json::object());
    if (hashes.empty()) return;
    const std::string medium = draw(3) == 0 ? "CPU" : "GPU";
    const std::size_t kind = draw(20);
    if (kind == 0) return clear(one);
    const std::size_t first = draw(hashes.size());
    const std::size_t end = first + 1 + draw(hashes.size() - first);
    json fields{{"medium", medium}, {"blocks", {first, end}}};
    if (kind < 8) {
      world_.publish(one.publisher, one.engine, {removed_blocks(prompt, first, end, medium)});
      for (std::size_t i = first; i < end; ++i) release(one, hashes[i], medium);
      return;
    }
    const bool is_tokenless = kind < 11;
    // A name that nothing holds is known for a while only.
    const auto is_doubtful = [&](std::uint64_t hash) { return one.tokened.contains(hash) && !one.has(hash); };
    if (is_tokenless && std::any_of(&hashes[first], &hashes[first] + (end - first), is_doubtful)) return;
    if (!is_tokenless && first > 0 && !one.tokened.contains(hashes[first - 1])) return;
    if (is_tokenless) fields["tokenless"] = true;
    const auto effect = world_.publish(one.publisher, one.engine, {stored(prompt, fields)});
    if (effect.is_parent_unknown) {
      BOOST_TEST(!one.has(hashes[first - 1]));
      return;
    }
    for (std::size_t i = first; i < end; ++i) {
      if (!is_tokenless) one.tokened.insert(hashes[i]);
      if (one.tokened.contains(hashes[i])) hold(one, hashes[i], medium);
    }
  }

  [[nodiscard]] std::string random_prompt() {
    const std::string trunk = draw(2) == 0 ? "A" : "B";
    const std::string branch(1, static_cast<char>('C' + draw(3)));
    return trunk + ":0:" + std::to_string(4 * draw(40)) + "+" + branch + ":0:" + std::to_string(4 * draw(30));
  }
  [[nodiscard]] std::size_t draw(std::size_t bound) { return random_() % bound; }

 private:
  static void hold(modelled_engine& one, std::uint64_t hash, const std::string& medium) {
    unsigned& count = one.counts[{hash, medium}];
    count = medium == "GPU" ? 1 : count + 1;
  }
  static void release(modelled_engine& one, std::uint64_t hash, const std::string& medium) {
    unsigned& count = one.counts[{hash, medium}];
    if (count > 0) --count;
  }
  void clear(modelled_engine& one) {
    world_.publish(one.publisher, one.engine, {json{{"type", "AllBlocksCleared"}}});
    std::erase_if(one.counts, [](const auto& entry) { return entry.first.second == "GPU"; });
  }

  indexer_world& world_;
  std::mt19937_64 random_;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(block_resizing)

BOOST_AUTO_TEST_CASE(a_longer_block_is_cut_and_leaves_whole) {
  sized_world all(64);
  auto& [world, engine, number] = all;
  world.publish(number, engine, {stored("A:0:64"), stored("A:0:192", {{"blocks", {1, 3}}})});
  BOOST_TEST(score(world, "A:0:192") == 12);
  BOOST_TEST(world.blocks.find(number)->counters.stored == 12U);
  world.publish(number, engine, {removed_blocks("A:0:192", 2, 3)});
  BOOST_TEST(score(world, "A:0:192") == 8);
  BOOST_TEST(world.blocks.find(number)->counters.removed == 4U);
  world.publish(number, engine, {stored("A:0:128", {{"medium", "CPU"}, {"tokenless", true}})});
  world.publish(number, engine, {removed_blocks("A:0:192", 0, 2)});
  BOOST_TEST(std::abs(score(world, "A:0:192") - 6.4) < 1e-9);
}

BOOST_AUTO_TEST_CASE(of_a_block_that_is_cut_no_part_counts_alone) {
  sized_world all(64);
  auto& [world, engine, number] = all;
  world.publish(number, engine, {stored("A:0:128")});
  BOOST_TEST(score(world, "A:0:112") == 4);
  BOOST_TEST(score(world, "A:0:48") == 0);
}

BOOST_AUTO_TEST_CASE(longer_blocks_that_begin_alike_leave_each_other_their_part) {
  sized_world all(64);
  auto& [world, engine, number] = all;
  world.publish(number, engine, {stored("A:0:32+B:0:32"), stored("A:0:32+C:0:32"), stored("A:0:32+C:0:32")});
  world.publish(number, engine, {removed_blocks("A:0:32+D:0:32", 0, 1)});
  BOOST_TEST(score(world, "A:0:32+B:0:32") == 4);
  world.publish(number, engine, {removed_blocks("A:0:32+C:0:32", 0, 1)});
  world.publish(number, engine, {removed_blocks("A:0:32+C:0:32", 0, 1)});
  BOOST_TEST(score(world, "A:0:32+B:0:32") == 4);
  BOOST_TEST(score(world, "A:0:32+C:0:32") == 0);
  world.publish(number, engine, {removed_blocks("A:0:32+B:0:32", 0, 1)});
  BOOST_TEST(score(world, "A:0:32+B:0:32") == 0);
  BOOST_TEST(world.blocks.find(number)->counters.refusals(placement_refusal::conflict) == 0U);
}

BOOST_AUTO_TEST_CASE(what_follows_a_block_that_lacks_a_part_counts_when_the_part_comes) {
  sized_world all(4);
  auto& [world, engine, number] = all;
  world.publish(number, engine, {stored("A:0:12"), removed_blocks("A:0:12", 0, 1)});
  world.publish(number, engine, {stored("A:0:32", {{"blocks", {3, 8}}})});
  BOOST_TEST(score(world, "A:0:32") == 0);
  world.publish(number, engine, {stored("A:0:4")});
  BOOST_TEST(score(world, "A:0:32") == 2);
}

BOOST_AUTO_TEST_CASE(shorter_blocks_are_one_while_all_of_them_are_there) {
  sized_world all(4);
  auto& [world, engine, number] = all;
  for (std::size_t block = 0; block < 7; ++block) {
    world.publish(number, engine, {stored("A:0:32", {{"blocks", {block, block + 1}}})});
    BOOST_TEST(score(world, "A:0:32") == static_cast<double>((block + 1) / 4));
  }
  world.publish(number, engine, {stored("A:0:32", {{"blocks", {7, 8}}})});
  BOOST_TEST(score(world, "A:0:32") == 2);
  world.publish(number, engine, {removed_blocks("A:0:32", 5, 6)});
  BOOST_TEST(score(world, "A:0:32") == 1);
  world.publish(number, engine, {stored("A:0:32", {{"blocks", {5, 6}}})});
  BOOST_TEST(score(world, "A:0:32") == 2);
  world.publish(number, engine, {removed_blocks("A:0:32", 0, 1)});
  BOOST_TEST(score(world, "A:0:32") == 0);
}

BOOST_AUTO_TEST_CASE(prompts_that_part_within_a_block_share_its_beginning) {
  sized_world all(4);
  auto& [world, engine, number] = all;
  world.publish(number, engine, {stored("A:0:8+B:0:8")});
  world.publish(number, engine, {stored("A:0:8+C:0:8", {{"blocks", {2, 4}}})});
  BOOST_TEST(score(world, "A:0:8+B:0:8") == 1);
  BOOST_TEST(score(world, "A:0:8+C:0:8") == 1);
  world.publish(number, engine, {removed_blocks("A:0:8", 1, 2)});
  BOOST_TEST(score(world, "A:0:8+B:0:8") == 0);
  BOOST_TEST(score(world, "A:0:8+C:0:8") == 0);
  world.publish(number, engine, {stored("A:0:8", {{"blocks", {1, 2}}})});
  BOOST_TEST(score(world, "A:0:8+B:0:8") == 1);
  BOOST_TEST(score(world, "A:0:8+C:0:8") == 1);
}

BOOST_AUTO_TEST_CASE(sizes_that_are_no_multiples_are_refused_and_counted) {
  indexer_world world(std::size_t{32} << 20, whole);
  for (const std::size_t size : {24U, 5U, 16U * 65U}) {
    const case_engine engine = engine_of(size);
    const publisher_id number = world.open(engine);
    world.publish(number, engine, {stored("A:0:2080")});
    BOOST_TEST(world.blocks.find(number)->counters.refusals(placement_refusal::size) == 2080 / size);
    BOOST_TEST(score(world, "A:0:2080") == 0);
    world.blocks.close(number);
  }
}

BOOST_AUTO_TEST_CASE(a_part_behind_an_unknown_one_is_reported) {
  sized_world all(4);
  auto& [world, engine, number] = all;
  BOOST_TEST(world.publish(number, engine, {stored("A:0:32", {{"blocks", {2, 4}}})}).is_parent_unknown);
  BOOST_TEST(world.blocks.find(number)->counters.refusals(placement_refusal::unknown_parent) == 2U);
  BOOST_TEST(!world.publish(number, engine, {stored("A:0:32")}).is_parent_unknown);
}

BOOST_AUTO_TEST_CASE(a_salt_stands_in_the_first_block_of_an_engine_s) {
  for (const std::size_t size : {4U, 64U}) {
    sized_world all(size);
    auto& [world, engine, number] = all;
    const json salted{{"extra", {{"0", {"salt"}}}}};
    world.publish(number, engine, {stored("A:0:64", salted)});
    json question{{"of", "A:0:64"}};
    BOOST_TEST(world.scores(question).empty());
    question.update(salted);
    BOOST_TEST(world.scores(question).at(engine.pod) == 4);
  }
}

BOOST_AUTO_TEST_CASE(a_restart_and_a_clear_by_an_operator_leave_no_part) {
  for (const bool is_restart : {true, false}) {
    sized_world all(4);
    auto& [world, engine, number] = all;
    world.publish(number, engine, {stored("A:0:12")});
    if (is_restart) {
      world.blocks.clear(number);
    } else {
      BOOST_TEST(world.blocks.clear(engine.pod, "gpu"));
    }
    world.publish(number, engine, {stored("A:0:16", {{"blocks", {3, 4}}})});
    BOOST_TEST(score(world, "A:0:16") == 0);
    world.publish(number, engine, {stored("A:0:16")});
    BOOST_TEST(score(world, "A:0:16") == 1);
  }
}

BOOST_AUTO_TEST_CASE(a_node_s_blocks_are_cut_as_its_engines_are) {
  for (const bool is_node_first : {false, true}) {
    indexer_world world(std::size_t{32} << 20, whole);
    case_engine engine = engine_of(64);
    engine.node = "n1";
    case_engine node = engine_of(64, "node:n1");
    const publisher_id pod = world.open(engine);
    const publisher_id machine = world.open(node);
    const json held = stored("A:0:128", {{"medium", "CPU"}, {"tokenless", true}});
    if (is_node_first) world.publish(machine, node, {held});
    world.publish(pod, engine, {stored("A:0:128")});
    if (!is_node_first) world.publish(machine, node, {held});
    world.publish(pod, engine, {removed_blocks("A:0:128", 0, 2)});
    BOOST_TEST(std::abs(score(world, "A:0:128") - 6.4) < 1e-9, "the node first: " << is_node_first);
    world.publish(machine, node, {removed_blocks("A:0:128", 1, 2, "CPU")});
    BOOST_TEST(std::abs(score(world, "A:0:128") - 3.2) < 1e-9);
  }
}

BOOST_AUTO_TEST_CASE(a_node_s_name_of_a_part_is_no_whole_block) {
  indexer_world world(std::size_t{32} << 20, whole);
  case_engine engine = engine_of(4);
  engine.node = "n1";
  const case_engine node = engine_of(4, "node:n1");
  const publisher_id pod = world.open(engine);
  const publisher_id machine = world.open(node);
  world.publish(pod, engine, {stored("A:0:16")});
  world.publish(machine, node, {stored("A:0:16", {{"medium", "CPU"}, {"tokenless", true}, {"blocks", {3, 4}}})});
  world.publish(pod, engine, {removed_blocks("A:0:16", 0, 4)});
  BOOST_TEST(score(world, "A:0:16") == 0);
}

BOOST_AUTO_TEST_CASE(engines_of_all_sizes_score_as_a_dictionary_has_them) {
  const std::size_t rounds = std::getenv("CENOTE_TEST_FULL") == nullptr ? 12'000 / cenote::testing::step_cost : 200'000;
  indexer_world world(std::size_t{64} << 20, whole);
  std::vector<modelled_engine> engines;
  for (const std::size_t size : {4U, 8U, 16U, 32U, 64U}) {
    modelled_engine& added = engines.emplace_back(size);
    added.publisher = world.open(added.engine);
  }
  random_events events(world, 20'26);
  std::size_t hits = 0;
  for (std::size_t round = 0; round < rounds; ++round) {
    events.step(engines[events.draw(engines.size())]);
    if (round % 4 != 0) continue;
    const std::string prompt = events.random_prompt();
    const auto tokens = tokens_of(prompt);
    for (const modelled_engine& each : engines) {
      const double truth = each.truth(tokens);
      hits += truth > 0 ? 1 : 0;
      BOOST_REQUIRE_MESSAGE(std::abs(score(world, prompt, each.engine.pod) - truth) < 1e-6,
                            "round " << round << ", " << prompt << ", " << each.engine.pod << ": "
                                     << score(world, prompt, each.engine.pod) << ", not " << truth);
    }
  }
  BOOST_TEST(hits > rounds / 100);
}

BOOST_AUTO_TEST_CASE(parts_that_nothing_holds_give_their_memory_back) {
  indexer_world world(std::size_t{64} << 20, whole);
  const case_engine engine = engine_of(4);
  const publisher_id number = world.open(engine);
  std::size_t bytes = 0;
  for (std::size_t prompt = 0; prompt < 400; ++prompt) {
    const std::string name = "P" + std::to_string(prompt) + ":0:1024";
    world.publish(number, engine, {stored(name), removed_blocks(name, 0, 256)});
    if (prompt == 200) bytes = world.index.bytes();
  }
  BOOST_TEST(bytes > 0U);
  BOOST_TEST(world.index.bytes() < bytes + 200U * 64 * 30);  // the index's own names, which stay until memory is wanted
}

BOOST_AUTO_TEST_CASE(a_part_that_many_blocks_share_costs_a_batch_what_its_size_allows) {
  constexpr std::size_t branches = 512, toggles = 2000;
  sized_world all(4);
  auto& [world, engine, number] = all;
  for (std::size_t i = 0; i < branches; ++i)
    world.publish(number, engine, {stored("A:0:4+P" + std::to_string(i) + ":0:12")});
  const auto& counters = world.blocks.find(number)->counters;
  const std::uint64_t earlier = counters.stored;
  BOOST_TEST(earlier == branches);
  std::vector<json> events;
  for (std::size_t i = 0; i < toggles; ++i) {
    events.push_back(removed("A:0:4"));
    events.push_back(stored("A:0:4"));
  }
  world.publish(number, engine, events);
  BOOST_TEST(counters.stored - earlier > branches);
  BOOST_TEST(counters.stored - earlier < branches * toggles / 10);
  BOOST_TEST(counters.refusals(placement_refusal::bounds) > 0U);
  world.publish(number, engine, {stored("A:0:4")});
  BOOST_TEST(score(world, "A:0:4+P7:0:12") == 1);
}

BOOST_AUTO_TEST_CASE(parts_leave_half_of_the_memory_to_blocks) {
  constexpr std::size_t memory = std::size_t{4} << 20;
  indexer_world world(memory, whole);
  const case_engine greedy = engine_of(4, "10.0.0.9:8000");
  const publisher_id strange = world.open(greedy);
  for (std::size_t i = 0; i < 1000; ++i) {
    std::string prompt = "P" + std::to_string(i) + ":0:400";
    world.publish(strange, greedy, {stored(prompt, {{"blocks", {0, 99}}})});
  }
  BOOST_TEST(world.blocks.find(strange)->counters.refusals(placement_refusal::memory) > 0U);
  BOOST_TEST(world.index.bytes() <= memory);
  const case_engine engine = engine_of(16);
  const publisher_id number = world.open(engine);
  world.publish(number, engine, {stored("A:0:16000")});
  BOOST_TEST(score(world, "A:0:16000") == 1000);
}

BOOST_AUTO_TEST_CASE(a_part_with_a_long_list_is_refused) {
  sized_world all(4);
  auto& [world, engine, number] = all;
  world.publish(number, engine, {stored("A:0:16", {{"extra", {{"1", {std::string(2000, 'x')}}}}})});
  BOOST_TEST(world.blocks.find(number)->counters.refusals(placement_refusal::bounds) == 3U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
