// The C ABI of the indexer: null pointers, sizes of structs, handles that are closed, of another kind or of a parent.
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <string>
#include <thread>

#include "services/indexer/library/cenote_indexer.h"
#include "tests/support/allocations.hpp"
#include "tests/unit/services/indexer/library/fed_index.hpp"

namespace cenote::indexer {

namespace {

cenote_indexer_text text(std::string_view content) {
  return {content.data(), content.size()};
}

template <class T>
T sized() {
  T made{};
  made.struct_size = sizeof(T);
  return made;
}

struct indexer_end {
  void operator()(cenote_indexer* indexer) const noexcept { cenote_indexer_free(indexer); }
};
struct reader_end {
  void operator()(cenote_indexer_reader* reader) const noexcept { cenote_indexer_reader_free(reader); }
};

struct opened_index {
  opened_index() {
    auto options = sized<cenote_indexer_options>();
    options.memory = 32U << 20U;
    options.seed = text("test");
    cenote_indexer* made = nullptr;
    BOOST_REQUIRE(cenote_indexer_open(&options, &made) == CENOTE_INDEXER_OK);
    index.reset(made);
    cenote_indexer_reader* asked = nullptr;
    BOOST_REQUIRE(cenote_indexer_reader_open(made, &asked) == CENOTE_INDEXER_OK);
    reader.reset(asked);
  }
  cenote_indexer_outcome feed(const std::string& pod, std::uint64_t seq, const payload_bytes& payload) {
    auto out = sized<cenote_indexer_outcome>();
    const std::string topic = "kv@" + pod + "@m";
    BOOST_TEST(cenote_indexer_feed(index.get(), text(topic), seq, payload.data(), payload.size(), &out) == 0);
    return out;
  }
  cenote_indexer_question question() const {
    auto made = sized<cenote_indexer_question>();
    made.model = text("m");
    made.tokens = tokens.data();
    made.token_count = tokens.size();
    return made;
  }

  std::vector<std::uint32_t> tokens = tokens_of(prompt);
  case_engine engine = engine_of("a");
  std::unique_ptr<cenote_indexer, indexer_end> index;
  std::unique_ptr<cenote_indexer_reader, reader_end> reader;
};

std::string_view view(const cenote_indexer_text& content) {
  return {content.data, content.bytes};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(indexer_c_api)

BOOST_AUTO_TEST_CASE(a_program_feeds_and_asks) {
  opened_index world;
  const auto fed = world.feed("a", 0, stored(world.engine, prompt, 0, 12));
  BOOST_TEST(fed.fate == CENOTE_INDEXER_APPLIED);
  BOOST_TEST(fed.state == CENOTE_INDEXER_LIVE);
  const auto question = world.question();
  auto answer = sized<cenote_indexer_answer>();
  BOOST_REQUIRE(cenote_indexer_score(world.reader.get(), &question, &answer) == CENOTE_INDEXER_OK);
  BOOST_TEST(answer.blocks == 16);
  BOOST_TEST(answer.block_tokens == 16);
  BOOST_REQUIRE(answer.row_count == 1);
  BOOST_TEST(view(answer.rows[0].pod) == "a");
  BOOST_TEST(answer.rows[0].score == 12.0);
  BOOST_TEST(answer.rows[0].tokens == 192);
  BOOST_TEST(answer.rows[0].by_medium[0] == 12);
  BOOST_TEST(answer.degraded_count == 0);
}

BOOST_AUTO_TEST_CASE(keys_of_a_prompt_answer_as_its_tokens_do) {
  opened_index world;
  world.feed("a", 0, stored(world.engine, prompt, 0, 12));
  auto question = world.question();
  auto keys = sized<cenote_indexer_keys>();
  BOOST_REQUIRE(cenote_indexer_keys_of(world.reader.get(), &question, &keys) == 0);
  BOOST_REQUIRE(keys.key_count == 16);
  const std::vector<std::uint64_t> copy(keys.keys, keys.keys + keys.key_count);
  question = sized<cenote_indexer_question>();
  question.model = text("m");
  question.keys = copy.data();
  question.key_count = copy.size();
  auto answer = sized<cenote_indexer_answer>();
  BOOST_REQUIRE(cenote_indexer_score(world.reader.get(), &question, &answer) == 0);
  BOOST_REQUIRE(answer.row_count == 1);
  BOOST_TEST(answer.rows[0].blocks == 12);
  auto holders = sized<cenote_indexer_holders>();
  BOOST_REQUIRE(cenote_indexer_lookup(world.reader.get(), copy.data(), copy.size(), &holders) == 0);
  BOOST_REQUIRE(holders.block_count == 12);
  BOOST_TEST(holders.ends[11] == 12);
  BOOST_TEST(view(holders.holders[11].pod) == "a");
  cenote_indexer_text medium{};
  BOOST_REQUIRE(cenote_indexer_medium(world.reader.get(), holders.holders[0].medium, &medium) == 0);
  BOOST_TEST(view(medium) == "gpu");
  BOOST_TEST(cenote_indexer_medium(world.reader.get(), 99, &medium) == 0);
  BOOST_TEST(medium.bytes == 0);
}

BOOST_AUTO_TEST_CASE(pods_and_figures_come_with_their_texts) {
  opened_index world;
  world.feed("a", 0, stored(world.engine, prompt, 0, 12));
  world.feed("bb", 0, stored(world.engine, prompt, 0, 3));
  auto pods = sized<cenote_indexer_pods>();
  BOOST_REQUIRE(cenote_indexer_pods_of(world.reader.get(), &pods) == 0);
  BOOST_REQUIRE(pods.pod_count == 2);
  const auto& last = view(pods.pods[0].pod) == "bb" ? pods.pods[0] : pods.pods[1];
  BOOST_TEST(view(last.pod) == "bb");
  BOOST_TEST(view(last.model) == "m");
  BOOST_TEST(view(last.topic) == "kv@bb@m");
  BOOST_TEST(last.next_seq == 1);
  BOOST_TEST(last.blocks[0] == 3);
  auto figures = sized<cenote_indexer_figures>();
  BOOST_REQUIRE(cenote_indexer_figures_of(world.index.get(), &figures) == 0);
  BOOST_TEST(figures.stored == 15);
  BOOST_TEST(figures.publishers == 2);
  BOOST_TEST(figures.memory == 32U << 20U);
}

BOOST_AUTO_TEST_CASE(topics_are_opened_and_closed_and_pods_cleared) {
  opened_index world;
  auto settings = sized<cenote_indexer_topic>();
  settings.pod = text("a");
  settings.model = text("m");
  BOOST_TEST(cenote_indexer_topic_open(world.index.get(), text("t"), &settings) == 0);
  settings.pod = text("b");
  BOOST_TEST(cenote_indexer_topic_open(world.index.get(), text("t"), &settings) == CENOTE_INDEXER_SPEC_MISMATCH);
  settings.engine = 17;
  BOOST_TEST(cenote_indexer_topic_open(world.index.get(), text("u"), &settings) == CENOTE_INDEXER_INVALID_ARGUMENT);
  std::uint32_t was_there = 0;
  BOOST_TEST(cenote_indexer_clear(world.index.get(), text("a"), {}, &was_there) == 0);
  BOOST_TEST(was_there == 1);
  BOOST_TEST(cenote_indexer_clear(world.index.get(), text("z"), {}, &was_there) == 0);
  BOOST_TEST(was_there == 0);
  BOOST_TEST(cenote_indexer_clear(world.index.get(), text("a"), text("paper"), nullptr) ==
             CENOTE_INDEXER_INVALID_ARGUMENT);
  BOOST_TEST(cenote_indexer_topic_close(world.index.get(), text("t"), &was_there) == 0);
  BOOST_TEST(was_there == 1);
  BOOST_TEST(cenote_indexer_topic_close(world.index.get(), text("t"), &was_there) == 0);
  BOOST_TEST(was_there == 0);
  BOOST_TEST(cenote_indexer_advance(world.index.get()) == 0);
}

BOOST_AUTO_TEST_CASE(an_answer_closes_a_gap) {
  opened_index world;
  const std::vector batches{stored(world.engine, prompt, 0, 4), stored(world.engine, prompt, 4, 8),
                            stored(world.engine, prompt, 8, 12)};
  const auto late = world.feed("a", 2, batches[2]);
  BOOST_TEST(late.fate == CENOTE_INDEXER_WAITING);
  BOOST_TEST(late.missing == 2);
  BOOST_REQUIRE(late.ask != 0);
  BOOST_TEST(late.ask_start == 0);
  auto next = sized<cenote_indexer_ask>();
  BOOST_TEST(cenote_indexer_next_ask(world.index.get(), &next) == 0);
  BOOST_TEST(next.number == 0);  // it was given
  BOOST_TEST(cenote_indexer_next_ask(world.index.get(), nullptr) == CENOTE_INDEXER_INVALID_ARGUMENT);
  const auto topic = text("kv@a@m");
  auto out = sized<cenote_indexer_outcome>();
  for (std::uint64_t seq = 0; seq < 3; ++seq) {
    BOOST_TEST(cenote_indexer_replay(world.index.get(), topic, late.ask, seq, batches[seq].data(), batches[seq].size(),
                                     &out) == 0);
    BOOST_TEST(out.fate == CENOTE_INDEXER_APPLIED);
  }
  BOOST_TEST(cenote_indexer_replay_end(world.index.get(), topic, late.ask, UINT64_MAX, &out) == 0);
  BOOST_TEST(out.state == CENOTE_INDEXER_LIVE);
  BOOST_TEST(cenote_indexer_replay_failed(world.index.get(), topic, late.ask, &out) == 0);
  BOOST_TEST(out.fate == CENOTE_INDEXER_LATE);
  BOOST_TEST(cenote_indexer_replay_end(world.index.get(), text("kv@z@m"), 1, 0, &out) ==
             CENOTE_INDEXER_INVALID_ARGUMENT);
}

BOOST_AUTO_TEST_CASE(null_pointers_are_refused) {
  opened_index world;
  const auto question = world.question();
  auto answer = sized<cenote_indexer_answer>();
  cenote_indexer* const index = world.index.get();
  cenote_indexer_reader* const reader = world.reader.get();
  const std::vector refusals{cenote_indexer_open(nullptr, nullptr),
                             cenote_indexer_reader_open(index, nullptr),
                             cenote_indexer_feed(nullptr, text("kv@a@m"), 0, "x", 1, nullptr),
                             cenote_indexer_feed(index, text("kv@a@m"), 0, nullptr, 1, nullptr),
                             cenote_indexer_replay(index, text("kv@a@m"), 1, 0, nullptr, 1, nullptr),
                             cenote_indexer_feed(index, {}, 0, "x", 1, nullptr),
                             cenote_indexer_topic_open(index, text("t"), nullptr),
                             cenote_indexer_figures_of(index, nullptr),
                             cenote_indexer_score(reader, nullptr, &answer),
                             cenote_indexer_score(reader, &question, nullptr),
                             cenote_indexer_score(nullptr, &question, &answer),
                             cenote_indexer_keys_of(reader, &question, nullptr),
                             cenote_indexer_lookup(reader, nullptr, 1, nullptr),
                             cenote_indexer_medium(reader, 0, nullptr),
                             cenote_indexer_pods_of(reader, nullptr)};
  for (const int each : refusals) BOOST_TEST(each == CENOTE_INDEXER_INVALID_ARGUMENT);
  BOOST_TEST(std::string(cenote_indexer_last_error()).find("null pointer") != std::string::npos);
  cenote_indexer_free(nullptr);
  cenote_indexer_reader_free(nullptr);
}

BOOST_AUTO_TEST_CASE(lists_that_are_hollow_or_too_long_are_refused) {
  opened_index world;
  auto answer = sized<cenote_indexer_answer>();
  auto question = world.question();
  question.tokens = nullptr;
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &answer) == CENOTE_INDEXER_INVALID_ARGUMENT);
  question = world.question();
  question.token_count = (std::size_t{1} << 20) + 1;
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &answer) == CENOTE_INDEXER_INVALID_ARGUMENT);
  question = world.question();
  question.pod_count = 1;
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &answer) == CENOTE_INDEXER_INVALID_ARGUMENT);
}

BOOST_AUTO_TEST_CASE(structs_need_their_size_and_may_be_of_an_older_or_newer_header) {
  opened_index world;
  world.feed("a", 0, stored(world.engine, prompt, 0, 12));
  auto question = world.question();
  cenote_indexer_answer unsized{};
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &unsized) == CENOTE_INDEXER_INVALID_ARGUMENT);
  question.struct_size = 0;
  auto answer = sized<cenote_indexer_answer>();
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &answer) == CENOTE_INDEXER_INVALID_ARGUMENT);
  BOOST_TEST(std::string(cenote_indexer_last_error()).find("struct_size") != std::string::npos);

  cenote_indexer_options options{};
  cenote_indexer* none = nullptr;
  BOOST_TEST(cenote_indexer_open(&options, &none) == CENOTE_INDEXER_INVALID_ARGUMENT);
  BOOST_TEST(none == nullptr);

  struct {
    cenote_indexer_answer answer;
    std::uint64_t further = 7;
  } newer{.answer = {}};
  newer.answer.struct_size = sizeof(newer);
  question = world.question();
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &newer.answer) == 0);
  BOOST_TEST(newer.answer.row_count == 1);
  BOOST_TEST(newer.further == 7);

  cenote_indexer_answer older{};
  older.struct_size = offsetof(cenote_indexer_answer, rows);
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &older) == 0);
  BOOST_TEST(older.blocks == 16);
  BOOST_TEST(older.row_count == 0);
}

BOOST_AUTO_TEST_CASE(options_with_unknown_numbers_are_refused) {
  for (const int field : {0, 1, 2, 3, 4}) {
    auto options = sized<cenote_indexer_options>();
    if (field == 0) options.key = 9;
    if (field == 1) options.engine = 9;
    if (field == 2) options.replays = 9;
    if (field == 3) options.memory = 5;
    if (field == 4) options.weight_count = 1;
    cenote_indexer* none = nullptr;
    BOOST_TEST(cenote_indexer_open(&options, &none) == CENOTE_INDEXER_INVALID_ARGUMENT);
    BOOST_TEST(none == nullptr);
  }
}

BOOST_AUTO_TEST_CASE(a_freed_handle_is_closed_and_so_are_its_readers) {
  opened_index world;
  const auto question = world.question();
  auto answer = sized<cenote_indexer_answer>();
  cenote_indexer* const index = world.index.release();
  cenote_indexer_free(index);
  cenote_indexer_free(index);
  BOOST_TEST(cenote_indexer_advance(index) == CENOTE_INDEXER_CLOSED);
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &answer) == CENOTE_INDEXER_CLOSED);
  cenote_indexer_reader* const reader = world.reader.release();
  cenote_indexer_reader_free(reader);
  BOOST_TEST(cenote_indexer_score(reader, &question, &answer) == CENOTE_INDEXER_CLOSED);
  // NOLINTNEXTLINE: handles are numbers in the shape of pointers
  BOOST_TEST(cenote_indexer_advance(reinterpret_cast<cenote_indexer*>(reader)) == CENOTE_INDEXER_INVALID_ARGUMENT);
}

BOOST_AUTO_TEST_CASE(a_handle_belongs_to_the_process_that_made_it) {
  opened_index world;
  const auto question = world.question();
  const ::pid_t child = ::fork();
  if (child == 0) {
    auto answer = sized<cenote_indexer_answer>();
    const bool is_refused = cenote_indexer_advance(world.index.get()) == CENOTE_INDEXER_FORKED &&
                            cenote_indexer_score(world.reader.get(), &question, &answer) == CENOTE_INDEXER_FORKED;
    ::_exit(is_refused ? 0 : 1);
  }
  int status = -1;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST(status == 0);
  auto answer = sized<cenote_indexer_answer>();
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &answer) == 0);
}

BOOST_AUTO_TEST_CASE(a_question_allocates_nothing_once_its_memory_is_there) {
  opened_index world;
  for (int i = 0; i < 20; ++i) world.feed("pod" + std::to_string(i), 0, stored(world.engine, prompt, 0, 16));
  const auto question = world.question();
  auto answer = sized<cenote_indexer_answer>();
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &answer) == 0);
  const auto counts = test::allocations_during(
      [&] { static_cast<void>(cenote_indexer_score(world.reader.get(), &question, &answer)); });
  BOOST_TEST(counts.calls == 0);
  BOOST_TEST(answer.row_count == 20);
}

BOOST_AUTO_TEST_CASE(threads_that_feed_at_once_are_refused_and_harm_nothing) {
  opened_index world;
  const auto payload = stored(world.engine, prompt, 0, 16);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const std::string topic = "kv@pod" + std::to_string(i) + "@m";
      for (std::uint64_t seq = 0; seq < 200;) {
        const int status =
            cenote_indexer_feed(world.index.get(), text(topic), seq, payload.data(), payload.size(), nullptr);
        if (status == CENOTE_INDEXER_OK) ++seq;
        if (status != CENOTE_INDEXER_OK && status != CENOTE_INDEXER_LIMIT_EXCEEDED) ++wrong;
      }
    });
  }
  for (std::thread& each : threads) each.join();
  BOOST_TEST(wrong.load() == 0);
  const auto question = world.question();
  auto answer = sized<cenote_indexer_answer>();
  BOOST_TEST(cenote_indexer_score(world.reader.get(), &question, &answer) == 0);
  BOOST_TEST(answer.row_count == 4);
}

BOOST_AUTO_TEST_CASE(the_version_is_that_of_the_header) {
  BOOST_TEST(cenote_indexer_abi_version() == ((CENOTE_INDEXER_ABI_MAJOR << 16) | CENOTE_INDEXER_ABI_MINOR));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer
