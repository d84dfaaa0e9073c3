// The index within a program: numbers and gaps, answers to its questions, pods, and readers beside the thread that
// feeds.
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <thread>

#include "tests/support/allocations.hpp"
#include "tests/unit/services/indexer/library/fed_index.hpp"

namespace cenote::indexer {

namespace {

using found_blocks = std::map<std::string, std::uint32_t>;

const case_engine& pod_a() {
  static const case_engine engine = engine_of("a");
  return engine;
}

std::string topic_of(const case_engine& engine) {
  return "kv@" + engine.pod + "@" + engine.model;
}

local_index_options without_replays() {
  local_index_options options = small_index();
  options.replays = replay_source::none;
  return options;
}

/// Scores of a case's question.
pod_scores scores_of(fed_index& world, const test::json& question) {
  const auto tokens = tokens_of(question["of"]);
  const std::string model = question.value("model_name", "m");
  const std::string lora_name = question.value("lora_name", "");
  std::vector<std::string_view> pods;
  if (question.contains("pod_identifiers")) {
    for (const auto& pod : question["pod_identifiers"]) pods.push_back(pod.get_ref<const std::string&>());
  }
  extra_key_table extra;
  if (question.contains("extra")) {
    test::json lists = test::json::array();
    for (std::size_t i = 0; i < tokens.size() / 16; ++i) {
      const std::string block = std::to_string(i);
      lists.push_back(question["extra"].contains(block) ? question["extra"][block] : test::json());
    }
    extra = table_of(lists);
  }
  pod_scores scores;
  const score_answer answer = world.questions.score(
      {.model = model, .tokens = tokens, .pods = pods, .lora_name = lora_name, .extra_keys = extra.view()});
  for (const pod_score& each : answer.scores) scores[std::string(each.pod)] = each.score;
  return scores;
}

/// The publishers of a case, each a topic with a row of numbers.
struct case_topics {
  std::map<std::string, case_engine> engines;
  std::map<std::string, std::uint64_t> numbers;
};

void publish(fed_index& world, case_topics& topics, const test::json& step, const std::string& place) {
  const std::string key = step["publish"];
  test::json events = test::json::array();
  for (const test::json& event : step["events"]) events.push_back(topics.engines.at(key).event_of(event));
  const auto payload = test::json::to_msgpack(test::json{1.5, events, step.value("dp_rank", 0U)});
  const auto fed = world.index.feed("topic " + key, topics.numbers[key]++, view_of(payload), world.now);
  BOOST_REQUIRE(fed);
  BOOST_TEST((fed->fate == batch_fate::applied || fed->fate == batch_fate::unreadable), place);
}

/// Runs a case as a program would.
void run_case(const test::json& one) {
  local_index_options options = without_replays();
  if (one.contains("weights")) options.weights = one["weights"].get<std::map<std::string, double>>();
  fed_index world(options);
  case_topics topics;
  for (const auto& [key, facts] : one["publishers"].items()) {
    const case_engine& engine = topics.engines.emplace(key, case_engine(facts)).first->second;
    const topic_settings settings{.pod = engine.pod, .model = engine.model, .node = engine.node};
    BOOST_REQUIRE(world.index.open("topic " + key, settings, world.now));
  }
  std::size_t number = 0;
  for (const test::json& step : one["steps"]) {
    const std::string place = one["name"].get<std::string>() + ", step " + std::to_string(++number);
    if (step.contains("publish")) {
      publish(world, topics, step, place);
    } else if (step.contains("restart")) {
      BOOST_TEST(world.index.clear(topics.engines.at(step["restart"]).pod, "", world.now).value(), place);
    } else if (step.contains("close")) {
      BOOST_TEST(world.index.close("topic " + step["close"].get<std::string>(), world.now), place);
    } else {
      world.index.advance(world.now);
      check_scores(scores_of(world, step["score"]), step["expect"], place);
    }
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(local_index_tests)

BOOST_AUTO_TEST_CASE(every_case_of_the_indexer_has_its_scores) {
  for (const test::json& file : test::case_files("scores.json", "indexer/scores.json")) {
    for (const test::json& one : file["cases"]) run_case(one);
  }
}

BOOST_AUTO_TEST_CASE(batches_in_their_order_are_applied_at_once) {
  fed_index world;
  const feed_outcome first = world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 8));
  BOOST_CHECK(first.fate == batch_fate::applied);
  BOOST_TEST(first.applied == 1);
  BOOST_CHECK(!first.ask && !first.cleared && first.state == publisher_state::live);
  BOOST_CHECK(world.feed(pod_a(), 1, stored(pod_a(), prompt, 8, 16)).fate == batch_fate::applied);
  BOOST_TEST((world.blocks(prompt) == found_blocks{{"a", 16}}));
  BOOST_CHECK(world.feed(pod_a(), 2, removed(pod_a(), prompt, 12, 16)).fate == batch_fate::applied);
  BOOST_TEST((world.blocks(prompt) == found_blocks{{"a", 12}}));
}

BOOST_AUTO_TEST_CASE(a_batch_that_comes_again_is_applied_once) {
  fed_index world;
  const auto payload = stored(pod_a(), prompt, 0, 8, "CPU");
  world.feed(pod_a(), 0, payload);
  const feed_outcome again = world.feed(pod_a(), 0, payload);
  BOOST_CHECK(again.fate == batch_fate::repeated);
  BOOST_TEST(again.applied == 0);
  BOOST_TEST(world.index.figures().events.batches == 1);
}

BOOST_AUTO_TEST_CASE(a_gap_names_the_missing_batches_and_is_closed_by_an_answer) {
  fed_index world;
  const std::vector batches{stored(pod_a(), prompt, 0, 4), stored(pod_a(), prompt, 4, 8),
                            stored(pod_a(), prompt, 8, 12), stored(pod_a(), prompt, 12, 16)};
  world.feed(pod_a(), 0, batches[0]);
  const feed_outcome late = world.feed(pod_a(), 3, batches[3]);
  BOOST_CHECK(late.fate == batch_fate::waiting);
  BOOST_TEST(late.missing_first == 1);
  BOOST_TEST(late.missing == 2);
  BOOST_REQUIRE(late.ask);
  BOOST_TEST(late.ask->start == 0);  // the batch that proves that the publisher is the same
  BOOST_CHECK(late.state == publisher_state::replaying);
  BOOST_TEST((world.blocks(prompt) == found_blocks{{"a", 4}}));
  for (std::uint64_t seq = 0; seq < 4; ++seq) {
    const auto fed = world.index.replay(topic_of(pod_a()), late.ask->number, seq, view_of(batches[seq]), world.now);
    BOOST_CHECK(fed.value().fate == (seq == 0 ? batch_fate::repeated : batch_fate::applied));
  }
  const auto end = world.index.end_replay(topic_of(pod_a()), late.ask->number, end_number, world.now);
  BOOST_CHECK(end.value().state == publisher_state::live);
  BOOST_CHECK(!end->cleared && !end->ask);
  BOOST_TEST((world.blocks(prompt) == found_blocks{{"a", 16}}));
  BOOST_CHECK(world.feed(pod_a(), 4, removed(pod_a(), prompt, 15, 16)).fate == batch_fate::applied);
}

BOOST_AUTO_TEST_CASE(a_question_is_given_once_and_an_answer_to_another_is_late) {
  fed_index world;
  const auto payload = stored(pod_a(), prompt, 0, 4);
  const feed_outcome first = world.feed(pod_a(), 5, payload);
  BOOST_REQUIRE(first.ask);
  BOOST_CHECK(!world.feed(pod_a(), 6, payload).ask);
  const auto other = world.index.replay(topic_of(pod_a()), first.ask->number + 1, 0, view_of(payload), world.now);
  BOOST_CHECK(other.value().fate == batch_fate::late);
  BOOST_TEST(world.blocks(prompt).empty());
}

BOOST_AUTO_TEST_CASE(a_question_that_comes_later_is_given_without_a_batch) {
  fed_index world;
  const feed_outcome first = world.feed(pod_a(), 5, stored(pod_a(), prompt, 0, 4));
  BOOST_REQUIRE(first.ask);
  BOOST_CHECK(!world.index.next_ask(world.now));
  world.now += std::chrono::seconds(10);  // the answer is late
  world.index.advance(world.now);
  world.now += std::chrono::seconds(10);
  const auto again = world.index.next_ask(world.now);
  BOOST_REQUIRE(again);
  BOOST_TEST(again->topic == topic_of(pod_a()));
  BOOST_TEST(again->ask.number > first.ask->number);
  BOOST_CHECK(!world.index.next_ask(world.now));
  world.now += std::chrono::seconds(10);
  world.index.advance(world.now);
  world.index.close(topic_of(pod_a()), world.now);
  BOOST_CHECK(!world.index.next_ask(world.now));
}

BOOST_AUTO_TEST_CASE(a_failed_answer_is_asked_for_again_and_at_last_batches_are_taken_as_they_come) {
  fed_index world;
  const case_engine& a = pod_a();
  feed_outcome last = world.feed(a, 7, stored(a, prompt, 0, 4));
  std::size_t asks = 0;
  std::uint64_t seq = 8;
  while (last.state != publisher_state::degraded && asks < 100) {
    if (last.ask) {
      ++asks;
      BOOST_REQUIRE(world.index.fail_replay(topic_of(a), last.ask->number, world.now));
    }
    world.now += std::chrono::seconds(1);
    last = world.feed(a, seq++, stored(a, prompt, 0, 4));
  }
  BOOST_TEST(asks > 1);
  BOOST_TEST(asks < 100);
  BOOST_TEST((world.blocks(prompt) == found_blocks{{"a", 4}}));
}

BOOST_AUTO_TEST_CASE(without_replays_a_gap_costs_the_publishers_blocks_and_is_marked) {
  fed_index world(without_replays());
  world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 8));
  const feed_outcome late = world.feed(pod_a(), 2, stored(pod_a(), "B:0:64", 0, 4));
  BOOST_CHECK(late.fate == batch_fate::applied);
  BOOST_CHECK(late.cleared == clear_reason::loss);
  BOOST_TEST(late.missing_first == 1);
  BOOST_TEST(late.missing == 1);
  BOOST_CHECK(late.state == publisher_state::degraded);
  BOOST_TEST(world.blocks(prompt).empty());
  BOOST_TEST((world.blocks("B:0:64") == found_blocks{{"a", 4}}));
  const auto tokens = tokens_of("B:0:64");
  const score_answer answer = world.questions.score({.model = "m", .tokens = tokens});
  BOOST_REQUIRE(answer.degraded.size() == 1);
  BOOST_TEST(answer.degraded[0] == "a");
}

BOOST_AUTO_TEST_CASE(an_engine_that_begins_anew_loses_what_it_had) {
  fed_index world;
  world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 8));
  world.feed(pod_a(), 1, stored(pod_a(), prompt, 8, 16));
  world.now += std::chrono::seconds(1);
  const feed_outcome anew = world.feed(pod_a(), 0, stored(pod_a(), "B:0:64", 0, 4));
  BOOST_CHECK(anew.fate == batch_fate::applied);
  BOOST_CHECK(anew.cleared == clear_reason::restart || anew.cleared == clear_reason::renewal);
  BOOST_TEST(world.blocks(prompt).empty());
  BOOST_TEST((world.blocks("B:0:64") == found_blocks{{"a", 4}}));
  BOOST_CHECK(world.feed(pod_a(), 1, stored(pod_a(), prompt, 0, 8)).fate == batch_fate::applied);
}

BOOST_AUTO_TEST_CASE(a_snapshot_takes_the_place_of_what_was_there) {
  local_index_options options = small_index();
  options.replays = replay_source::snapshots;
  fed_index world(options);
  case_engine node = engine_of("node:n1");
  node.has_byte_hashes = true;
  BOOST_REQUIRE(world.index.open(topic_of(pod_a()), {.node = "n1"}, world.now));
  world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 4));
  const test::json names{
      {"type", "BlockStored"}, {"of", prompt}, {"medium", "CPU"}, {"tokenless", true}, {"blocks", {0, 2}}};
  const auto payload = test::json::to_msgpack(test::json{1.5, {node.event_of(names)}, 0});
  const feed_outcome asked = world.feed(node, 9, payload);
  BOOST_REQUIRE(asked.ask);
  BOOST_TEST(asked.ask->is_snapshot);
  BOOST_CHECK(world.index.replay(topic_of(node), asked.ask->number, 0, view_of(payload), world.now).value().fate ==
              batch_fate::applied);
  BOOST_CHECK(world.index.end_replay(topic_of(node), asked.ask->number, 9, world.now).value().state ==
              publisher_state::live);
  world.feed(pod_a(), 1, removed(pod_a(), prompt, 0, 4));
  BOOST_TEST((world.blocks(prompt) == found_blocks{{"a", 2}}));  // the node's alone
}

BOOST_AUTO_TEST_CASE(a_payload_that_makes_no_sense_costs_its_publishers_blocks) {
  fed_index world;
  world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 8));
  BOOST_CHECK(world.feed(pod_a(), 1, {0xc1}).fate == batch_fate::unreadable);
  BOOST_TEST(world.blocks(prompt).empty());
  BOOST_TEST(world.index.figures().bad_batches == 1);
  BOOST_CHECK(world.feed(pod_a(), 2, stored(pod_a(), prompt, 0, 4)).fate == batch_fate::applied);
}

BOOST_AUTO_TEST_CASE(a_batch_above_the_bound_is_dropped) {
  local_index_options options = without_replays();
  options.feed.batch_bytes = 8;
  fed_index world(options);
  BOOST_CHECK(world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 8)).fate == batch_fate::dropped);
  BOOST_TEST(world.blocks(prompt).empty());
}

BOOST_AUTO_TEST_CASE(topics_have_bounds) {
  local_index_options options = small_index();
  options.publishers = 1;
  fed_index world(options);
  const auto payload = stored(pod_a(), prompt, 0, 1);
  for (const std::string& topic : {std::string("kv@\n@m"), "kv@" + std::string(257, 'p') + "@m"}) {
    BOOST_CHECK(world.index.feed(topic, 0, view_of(payload), world.now).error().code() == error_code::invalid_argument);
  }
  BOOST_CHECK(world.feed(pod_a(), 0, payload).fate == batch_fate::applied);
  const auto further = world.index.feed("kv@b@m", 0, view_of(payload), world.now);
  BOOST_CHECK(further.error().code() == error_code::limit_exceeded);
  BOOST_TEST(world.index.close(topic_of(pod_a()), world.now));
  BOOST_TEST(!world.index.close(topic_of(pod_a()), world.now));
  BOOST_TEST(world.blocks(prompt).empty());
  BOOST_CHECK(world.index.feed("kv@b@m", 0, view_of(payload), world.now).has_value());
}

BOOST_AUTO_TEST_CASE(a_topic_is_open_with_one_set_of_settings) {
  fed_index world;
  BOOST_CHECK(world.index.open("t", {.pod = "a", .model = "m"}, world.now).has_value());
  BOOST_CHECK(world.index.open("t", {.pod = "a", .model = "m"}, world.now).has_value());
  BOOST_CHECK(world.index.open("t", {.pod = "b", .model = "m"}, world.now).error().code() == error_code::spec_mismatch);
  const auto payload = stored(pod_a(), prompt, 0, 4);
  BOOST_CHECK(world.index.feed("t", 0, view_of(payload), world.now).has_value());
  BOOST_TEST((world.blocks(prompt) == found_blocks{{"a", 4}}));
}

BOOST_AUTO_TEST_CASE(a_pod_can_be_cleared_of_one_medium_and_of_all) {
  fed_index world;
  world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 4));
  world.feed(pod_a(), 1, stored(pod_a(), prompt, 0, 2, "CPU"));
  BOOST_TEST(!world.index.clear("nobody", "", world.now).value());
  BOOST_CHECK(world.index.clear("a", "paper", world.now).error().code() == error_code::invalid_argument);
  BOOST_TEST(world.index.clear("a", "gpu", world.now).value());
  BOOST_TEST((world.blocks(prompt) == found_blocks{{"a", 2}}));
  BOOST_TEST(world.index.clear("a", "", world.now).value());
  BOOST_TEST(world.blocks(prompt).empty());
}

BOOST_AUTO_TEST_CASE(pods_and_figures_show_the_state) {
  fed_index world;
  world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 4));
  world.feed(pod_a(), 1, stored(pod_a(), prompt, 0, 2, "CPU"));
  std::size_t count = 0;
  world.index.pods([&](const local_pod& pod) {
    ++count;
    BOOST_TEST(pod.pod == "a");
    BOOST_TEST(pod.model == "m");
    BOOST_TEST(pod.topic == "kv@a@m");
    BOOST_CHECK(pod.state == publisher_state::live && pod.last_seq == 1);
    BOOST_TEST(pod.blocks[0] == 4);
    BOOST_TEST(pod.blocks[1] == 2);
    BOOST_TEST(pod.counters.applied == 2);
  });
  BOOST_TEST(count == 1);
  const local_figures figures = world.index.figures();
  BOOST_TEST(figures.events.stored == 6);
  BOOST_TEST(figures.publishers == 1);
  BOOST_TEST(figures.index.bytes <= figures.memory);
}

BOOST_AUTO_TEST_CASE(options_that_can_never_work_are_refused) {
  local_index_options options = small_index();
  options.memory = 1000;
  BOOST_CHECK(local_index::make(options).error().code() == error_code::invalid_argument);
  options = small_index();
  options.weights = {{"gpu", -1.0}};
  BOOST_CHECK(local_index::make(options).error().code() == error_code::invalid_argument);
}

BOOST_AUTO_TEST_CASE(weights_replace_the_table) {
  local_index_options options = small_index();
  options.weights = {{"gpu", 3.0}};
  fed_index world(options);
  world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 2));
  world.feed(pod_a(), 1, stored(pod_a(), prompt, 2, 4, "CPU"));
  const auto tokens = tokens_of(prompt);
  const score_answer answer = world.questions.score({.model = "m", .tokens = tokens});
  BOOST_REQUIRE(answer.scores.size() == 1);
  BOOST_TEST(answer.scores[0].score == 6.0);
}

BOOST_AUTO_TEST_CASE(an_index_can_be_moved_while_its_readers_are_there) {
  fed_index world;
  world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 4));
  local_index moved = std::move(world.index);
  BOOST_TEST((world.blocks(prompt) == found_blocks{{"a", 4}}));
  const auto payload = stored(pod_a(), prompt, 4, 8);
  BOOST_CHECK(moved.feed(topic_of(pod_a()), 1, view_of(payload), world.now).has_value());
  BOOST_TEST((world.blocks(prompt) == found_blocks{{"a", 8}}));
  world.index = std::move(moved);
}

BOOST_AUTO_TEST_CASE(readers_have_a_bound) {
  fed_index world;
  std::vector<scorer> all;
  for (;;) {
    auto made = world.index.open_scorer();
    if (!made) {
      BOOST_CHECK(made.error().code() == error_code::limit_exceeded);
      break;
    }
    all.push_back(std::move(*made));
    BOOST_REQUIRE(all.size() <= epoch_table::most_readers);
  }
  BOOST_TEST(all.size() >= 100);
  all.pop_back();
  BOOST_CHECK(world.index.open_scorer().has_value());
}

BOOST_AUTO_TEST_CASE(a_question_allocates_nothing_once_its_memory_is_there) {
  fed_index world;
  for (int i = 0; i < 20; ++i) {
    const case_engine engine = engine_of("pod" + std::to_string(i));
    world.feed(engine, 0, stored(engine, prompt, 0, 16));
  }
  const auto tokens = tokens_of(prompt);
  const auto ask = [&] { BOOST_TEST(world.questions.score({.model = "m", .tokens = tokens}).scores.size() == 20); };
  ask();
  std::size_t pods = 0;
  const auto counts =
      test::allocations_during([&] { pods = world.questions.score({.model = "m", .tokens = tokens}).scores.size(); });
  BOOST_TEST(pods == 20);
  BOOST_TEST(counts.calls == 0);
}

// A removal takes the tail, a store brings it back: each answer is one of the two.
BOOST_AUTO_TEST_CASE(threads_ask_while_one_feeds) {
  fed_index world;
  world.feed(pod_a(), 0, stored(pod_a(), prompt, 0, 16));
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> wrong{0}, answers{0};
  std::vector<std::thread> threads;
  const auto tokens = tokens_of(prompt);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      scorer questions = world.index.open_scorer().value();
      std::uint64_t count = 0;
      do {
        const score_answer answer = questions.score({.model = "m", .tokens = tokens});
        const std::uint32_t blocks = answer.scores.size() == 1 ? answer.scores[0].blocks : 0;
        if (blocks != 8 && blocks != 16) ++wrong;
        ++count;
      } while (!is_over.load());
      answers += count;
    });
  }
  for (std::uint64_t i = 0; i < 2000; ++i) {
    const auto payload = i % 2 == 0 ? removed(pod_a(), prompt, 8, 16) : stored(pod_a(), prompt, 8, 16);
    world.now += std::chrono::milliseconds(1);
    if (world.feed(pod_a(), i + 1, payload).fate != batch_fate::applied) ++wrong;
  }
  is_over = true;
  for (std::thread& each : threads) each.join();
  BOOST_TEST(wrong.load() == 0);
  BOOST_TEST(answers.load() > 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
