// Events of publishers that lose, repeat, mix up or overdo.
#include "services/indexer/placement/placer.hpp"

#include <boost/test/unit_test.hpp>
#include <random>
#include <set>

#include "tests/support/indexer_world.hpp"

namespace cenote::indexer {

namespace {

using test::json;

const json all_cleared{{"type", "AllBlocksCleared"}};

}  // namespace

BOOST_AUTO_TEST_SUITE(placing)

BOOST_AUTO_TEST_CASE(an_event_behind_an_unknown_parent_is_counted_and_reported) {
  indexer_world world;
  const case_engine engine;
  const publisher_id number = world.open(engine);
  BOOST_TEST(world.publish(number, engine, {stored("A:0:64", {{"blocks", {2, 4}}})}).is_parent_unknown);
  BOOST_TEST(world.blocks.find(number)->counters.refusals(placement_refusal::unknown_parent) == 2U);
  BOOST_TEST(!world.publish(number, engine, {stored("A:0:32")}).is_parent_unknown);
}

BOOST_AUTO_TEST_CASE(a_clear_of_everything_is_reported) {
  indexer_world world;
  const case_engine engine;
  const publisher_id gpu = world.open(engine);
  world.publish(gpu, engine, {stored("A:0:32")});
  BOOST_TEST(!world.publish(gpu, engine, {all_cleared}).is_all_cleared);
  case_engine other;
  other.pod = "10.0.0.2:8000";
  const publisher_id all = world.open(other, clear_scope::all);
  world.publish(all, other, {stored("A:0:32", {{"medium", "CPU"}})});
  BOOST_TEST(world.publish(all, other, {all_cleared}).is_all_cleared);
  BOOST_TEST(world.scores({{"of", "A:0:32"}}).empty());
}

BOOST_AUTO_TEST_CASE(a_closed_publisher_leaves_nothing_and_may_come_again) {
  indexer_world world;
  const case_engine engine;
  for (int life = 0; life < 100; ++life) {
    const publisher_id number = world.open(engine);
    world.publish(number, engine, {stored("A:0:320")});
    BOOST_TEST(world.scores({{"of", "A:0:320"}}).at(engine.pod) == 20);
    world.blocks.close(number);
    BOOST_TEST(world.scores({{"of", "A:0:320"}}).empty());
    BOOST_TEST(world.blocks.find(number) == nullptr);
  }
  while (!world.index.sweep(1000)) {
  }
  const std::size_t bytes = world.index.bytes();
  for (int life = 0; life < 1000; ++life) {
    case_engine again;
    again.seed = static_cast<std::uint64_t>(life);
    const publisher_id number = world.open(again);
    world.publish(number, again, {stored("A:0:320")});
    world.blocks.close(number);
    while (!world.index.sweep(1000)) {
    }
  }
  BOOST_TEST(world.index.bytes() <= bytes + 65'536);
}

BOOST_AUTO_TEST_CASE(an_engine_that_begins_anew_with_other_hashes_takes_no_more_memory) {
  indexer_world world;
  case_engine engine;
  const publisher_id number = world.open(engine);
  std::size_t bytes = 0;
  for (std::uint64_t life = 0; life < 300; ++life) {
    engine.seed = life;
    world.publish(number, engine, {stored("A:0:640")});
    BOOST_TEST(world.scores({{"of", "A:0:640"}}).at(engine.pod) == 40);
    world.blocks.clear(number);
    while (!world.index.sweep(1000)) {
    }
    if (life == 20) bytes = world.index.bytes();
  }
  BOOST_TEST(world.index.bytes() <= bytes + 65'536);
}

BOOST_AUTO_TEST_CASE(of_two_publishers_of_one_pod_one_may_go_or_begin_anew) {
  indexer_world world;
  const case_engine engine;
  const publisher_id one = world.open(engine);
  const publisher_id other = world.open(engine);
  world.publish(one, engine, {stored("A:0:64")});
  world.publish(other, engine, {stored("A:0:64")});
  world.blocks.close(one);
  BOOST_TEST(world.scores(json{{"of", "A:0:64"}}).at(engine.pod) == 4);
  const publisher_id third = world.open(engine);
  world.publish(third, engine, {stored("A:0:64")});
  world.blocks.clear(other);
  while (!world.index.sweep(1000)) {
  }
  case_engine stranger;
  stranger.pod = "10.0.0.9:8000";  // it may get the numbers of holders that ended
  const publisher_id strange = world.open(stranger);
  world.publish(strange, stranger, {stored("B:0:64")});
  world.publish(third, engine, {stored("A:0:64")});
  check_scores(world.scores(json{{"of", "A:0:64"}}), json{{engine.pod, 4}}, "after the restart");
  world.blocks.close(third);
  check_scores(world.scores(json{{"of", "A:0:64"}}), json::object(), "after the end");
  check_scores(world.scores(json{{"of", "B:0:64"}}), json{{stranger.pod, 4}}, "of the other");
}

BOOST_AUTO_TEST_CASE(sizes_and_groups_of_one_publisher_take_no_room_of_others) {
  indexer_world world;
  case_engine hostile;
  hostile.pod = "10.0.0.9:8000";
  const publisher_id strange = world.open(hostile);
  for (std::size_t size = 1; size < 40; ++size) {
    hostile.block_tokens = size;
    world.publish(strange, hostile, {stored("A:0:64")});
    world.publish(strange, hostile,
                  {stored("A:0:64", {{"group_idx", size},
                                     {"kv_cache_spec_kind", "sliding_window"},
                                     {"kv_cache_spec_sliding_window", 100 + size}})});
  }
  const case_engine engine;
  const publisher_id number = world.open(engine);
  world.publish(
      number, engine,
      {stored("A:0:64", {{"group_idx", 0}, {"kv_cache_spec_kind", "full_attention"}}),
       stored("A:0:64",
              {{"group_idx", 1}, {"kv_cache_spec_kind", "sliding_window"}, {"kv_cache_spec_sliding_window", 33}})});
  check_scores(world.scores(json{{"of", "A:0:64"}}), json{{engine.pod, 4}}, "beside a strange pod");
  world.publish(number, engine, {removed("A:0:64", {{"blocks", {3, 4}}, {"group_idx", 1}})});
  BOOST_TEST(world.questions.score({.model = "m", .tokens = world.tokens}).scores[0].blocks == 3U);
}

BOOST_AUTO_TEST_CASE(models_without_publishers_give_their_room_to_others) {
  indexer_world world;
  for (std::size_t i = 0; i < 3 * model_table::most_models; ++i) {
    case_engine engine;
    engine.model = "model" + std::to_string(i);
    const publisher_id number = world.open(engine);
    if (i % 1000 == 0) {
      world.publish(number, engine, {stored("A:0:64")});
      BOOST_TEST(world.scores(json{{"of", "A:0:64"}, {"model_name", engine.model}}).at(engine.pod) == 4);
    }
    world.blocks.close(number);
    while (!world.index.sweep(1000)) {
    }
    world.index.reclaim();
    world.index.reclaim();
  }
  const case_engine engine;
  const publisher_id number = world.open(engine);
  for (int i = 0; i < 3000; ++i) {
    world.publish(number, engine, {stored("A:0:16", {{"lora_name", "adapter" + std::to_string(i)}})});
  }
  BOOST_TEST(world.index.models().size() <= model_table::most_models);
}

BOOST_AUTO_TEST_CASE(a_silent_pod_leaves_the_answers_and_comes_back_with_its_blocks) {
  indexer_world world;
  const case_engine engine;
  const publisher_id number = world.open(engine);
  world.publish(number, engine, {stored("A:0:64")});
  world.blocks.mark(number, {.is_hidden = true});
  BOOST_TEST(world.scores(json{{"of", "A:0:64"}}).empty());
  world.publish(number, engine, {removed("A:0:64", {{"blocks", {3, 4}}})});
  world.blocks.mark(number, {});
  BOOST_TEST(world.scores(json{{"of", "A:0:64"}}).at(engine.pod) == 3);
}

BOOST_AUTO_TEST_CASE(a_pod_that_lost_events_is_named_in_the_answers_of_its_model) {
  indexer_world world;
  case_engine engine;
  const publisher_id number = world.open(engine);
  world.blocks.mark(number, {.is_degraded = true});
  world.publish(number, engine, {stored("A:0:64")}, 3);
  const score_answer answer = world.ask(json{{"of", "A:0:64"}});
  BOOST_REQUIRE(answer.degraded.size() == 1U);
  BOOST_TEST(answer.degraded[0] == engine.pod);
  BOOST_TEST(answer.scores[0].dp_rank == 3);
  world.blocks.mark(number, {});
  BOOST_TEST(world.ask(json{{"of", "A:0:64"}}).degraded.empty());
}

BOOST_AUTO_TEST_CASE(a_pod_is_cleared_in_one_medium_or_in_all) {
  indexer_world world;
  const case_engine engine;
  const publisher_id number = world.open(engine);
  world.publish(number, engine, {stored("A:0:64"), stored("A:0:64", {{"medium", "CPU"}})});
  BOOST_TEST(world.blocks.clear(engine.pod, "gpu"));
  check_scores(world.scores(json{{"of", "A:0:64"}}), json{{engine.pod, 3.2}}, "after the clear");
  BOOST_TEST(world.blocks.clear(engine.pod, ""));
  BOOST_TEST(world.scores(json{{"of", "A:0:64"}}).empty());
}

BOOST_AUTO_TEST_CASE(an_event_whose_tokens_are_not_those_of_its_hashes_names_known_blocks_only) {
  indexer_world world;
  const case_engine engine;
  const publisher_id number = world.open(engine);
  world.publish(number, engine, {stored("A:0:64")});
  world.publish(number, engine, {removed("A:0:64")});
  const auto names = engine.hashes_of(tokens_of("A:0:64"), json::object());
  const json sparse{{"type", "BlockStored"},
                    {"block_hashes", {names[0], names[2], 77}},
                    {"parent_block_hash", nullptr},
                    {"token_ids", tokens_of("A:0:64")},
                    {"block_size", 16},
                    {"medium", "GPU"}};
  const auto bytes = json::to_msgpack(json{0.5, json::array({sparse}), 0});
  event_adapter adapter(event_engine::automatic);
  BOOST_REQUIRE(adapter.parse("kv@p@m", std::as_bytes(std::span(bytes)), world.batch));
  world.blocks.apply(number, world.batch);
  BOOST_TEST(world.scores(json{{"of", "A:0:64"}}).at(engine.pod) == 1);
  BOOST_TEST(world.blocks.find(number)->counters.refusals(placement_refusal::unknown_name) == 1U);
}

/// As vLLM does for a model with windows: of a window's group the last blocks, before the group that has all.
BOOST_AUTO_TEST_CASE(the_last_blocks_of_a_window_may_come_before_the_event_that_has_their_names) {
  indexer_world world;
  const case_engine engine;
  const publisher_id number = world.open(engine);
  const auto names = engine.hashes_of(tokens_of("A:0:96"), json::object());
  const auto event = [&](const json& hashes, const json& fields) {
    json made{{"type", "BlockStored"},
              {"block_hashes", hashes},
              {"parent_block_hash", nullptr},
              {"token_ids", tokens_of("A:0:96")},
              {"block_size", 16},
              {"medium", "GPU"}};
    made.update(fields);
    return made;
  };
  const auto apply = [&](const json& events) {
    const auto bytes = json::to_msgpack(json{0.5, events, 0});
    event_adapter adapter(event_engine::automatic);
    BOOST_REQUIRE(adapter.parse("kv@p@m", std::as_bytes(std::span(bytes)), world.batch));
    world.blocks.apply(number, world.batch);
  };
  const json window{{"group_idx", 0}, {"kv_cache_spec_kind", "sliding_window"}, {"kv_cache_spec_sliding_window", 32}};
  const json whole{{"group_idx", 1}, {"kv_cache_spec_kind", "full_attention"}};
  const json tail = json::array({names[4], names[5]});
  apply(json::array({event(tail, window), event(names, whole)}));
  BOOST_TEST(world.scores(json{{"of", "A:0:96"}}).at(engine.pod) == 6);
  BOOST_TEST(world.scores(json{{"of", "A:0:64"}}).empty());
  BOOST_TEST(world.blocks.find(number)->counters.refusals(placement_refusal::unknown_name) == 0U);
  const json gone{{"type", "BlockRemoved"}, {"block_hashes", tail}, {"medium", "GPU"}, {"group_idx", 0}};
  apply(json::array({event(tail, window), gone, event(names, whole)}));
  BOOST_TEST(world.scores(json{{"of", "A:0:96"}}).empty());
}

BOOST_AUTO_TEST_CASE(ranks_media_and_groups_beyond_their_bounds_are_counted) {
  indexer_world world;
  const case_engine engine;
  const publisher_id number = world.open(engine);
  for (std::uint32_t rank = 0; rank < 1100; ++rank) world.publish(number, engine, {stored("A:0:16")}, rank);
  world.publish(number, engine, {stored("A:0:16")}, 4'000'000);
  BOOST_TEST(world.blocks.find(number)->counters.refusals(placement_refusal::bounds) == 77U);
  for (int medium = 0; medium < 10; ++medium) {
    world.publish(number, engine, {stored("A:0:16", {{"medium", "tape" + std::to_string(medium)}})});
  }
  BOOST_TEST(world.blocks.find(number)->counters.refusals(placement_refusal::bounds) == 84U);
  for (int group = 1; group < 100; ++group) {
    world.publish(number, engine, {stored("A:0:16", {{"group_idx", group}, {"kv_cache_spec_kind", "sliding_window"}})});
  }
  BOOST_TEST(world.blocks.find(number)->counters.refusals(placement_refusal::bounds) > 84U);
}

/// Random events of three engines beside sets of what each holds: whatever the forms of hashes, media and adapters.
BOOST_AUTO_TEST_CASE(random_events_leave_the_scores_of_a_dictionary) {
  std::mt19937_64 random(5);
  indexer_world world(std::size_t{64} << 20);
  std::vector<case_engine> engines(3);
  std::vector<publisher_id> numbers;
  for (std::size_t i = 0; i < engines.size(); ++i) {
    engines[i].pod = "10.0.0." + std::to_string(i) + ":8000";
    engines[i].seed = i < 2 ? 7 : 8;
    engines[i].has_byte_hashes = i == 1;
    engines[i].has_arrays = i == 2;
    numbers.push_back(world.open(engines[i]));
  }
  // Prompts share beginnings: A, AB, ABC with 8 blocks each part.
  const std::vector<std::string> prompts{"A:0:128", "A:0:128+B:0:128", "A:0:64+C:0:128", "D:0:256",
                                         "A:0:128+B:0:64+E:0:128"};
  const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(random() % bound); };
  using place = std::pair<std::uint64_t, std::string>;  // hash by content, medium
  std::vector<std::map<place, int>> held(engines.size());
  const case_engine content;
  for (int step = 0; step < 4000; ++step) {
    const std::size_t i = below(engines.size());
    const std::string& prompt = prompts[below(prompts.size())];
    const auto names = content.hashes_of(tokens_of(prompt), json::object());
    const std::string medium = below(3) == 0 ? "CPU" : "GPU";
    std::size_t first = below(names.size());
    const std::size_t last = first + 1 + below(names.size() - first);
    const std::size_t kind = below(100);
    if (kind < 50) {
      first = 0;  // so that no parent is missing
      world.publish(numbers[i], engines[i], {stored(prompt, {{"blocks", {first, last}}, {"medium", medium}})});
      for (std::size_t b = first; b < last; ++b) {
        int& count = held[i][{names[b], medium}];
        count = medium == "GPU" ? 1 : count + 1;
      }
    } else if (kind < 98) {
      world.publish(numbers[i], engines[i], {removed(prompt, {{"blocks", {first, last}}, {"medium", medium}})});
      for (std::size_t b = first; b < last; ++b) {
        const auto found = held[i].find({names[b], medium});
        if (found != held[i].end() && --found->second == 0) held[i].erase(found);
      }
    } else if (kind == 98) {
      world.publish(numbers[i], engines[i], {all_cleared});
      std::erase_if(held[i], [](const auto& entry) { return entry.first.second == "GPU"; });
    } else {
      world.blocks.clear(numbers[i]);
      held[i].clear();
    }
    if (below(8) == 0) world.index.sweep(below(64));
    const std::string& question = prompts[below(prompts.size())];
    const auto asked = content.hashes_of(tokens_of(question), json::object());
    const pod_scores present = world.scores({{"of", question}});
    for (std::size_t pod = 0; pod < engines.size(); ++pod) {
      double expected = 0;
      for (const std::uint64_t name : asked) {
        if (held[pod].contains({name, "GPU"})) {
          expected += 1.0;
        } else if (held[pod].contains({name, "CPU"})) {
          expected += 0.8;
        } else {
          break;
        }
      }
      const auto found = present.find(engines[pod].pod);
      const double score = found == present.end() ? 0 : found->second;
      BOOST_REQUIRE_MESSAGE(std::abs(score - expected) < 1e-9,
                            "step " << step << ", pod " << pod << ": " << score << ", not " << expected);
    }
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
