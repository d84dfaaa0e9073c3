// Storages of plug-ins: questions, answers of every kind, and starts again behind a pause, in virtual time.
#include "services/manager/storages/plugin_storage.hpp"

#include <boost/test/unit_test.hpp>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace cenote::manager {

using namespace std::chrono_literals;

namespace {

/// A plug-in as a test writes it: what it was asked, and what it will answer.
struct scripted_plugin {
  std::vector<std::string> questions{};
  std::vector<std::chrono::milliseconds> limits{};  ///< of each
  std::deque<result<std::string>> answers{};        ///< "ID" stands for the number of the question
  std::optional<error> refusal{};                   ///< of starts
  int starts = 0;
  int running = 0;
  bool is_cancelled = false;
  plugin_time now{1h};
};

class scripted_channel final : public plugin_channel {
 public:
  explicit scripted_channel(scripted_plugin& script) : script_(script) { ++script_.running; }
  ~scripted_channel() override { --script_.running; }

  result<std::string> ask(std::string_view line, plugin_time deadline) override {
    script_.questions.emplace_back(line);
    script_.limits.push_back(std::chrono::duration_cast<std::chrono::milliseconds>(deadline - script_.now));
    BOOST_REQUIRE(!script_.answers.empty());
    auto answer = std::move(script_.answers.front());
    script_.answers.pop_front();
    if (!answer) return answer;
    if (const auto place = answer->find("ID"); place != std::string::npos) {
      answer->replace(place, 2, line.substr(6, line.find(',') - 6));  // behind {"id":
    }
    return answer;
  }

 private:
  scripted_plugin& script_;
};

class scripted_launcher final : public plugin_launcher {
 public:
  explicit scripted_launcher(scripted_plugin& script) : script_(script) {}

  result<std::unique_ptr<plugin_channel>> start() override {
    ++script_.starts;
    if (script_.refusal) return std::unexpected(*script_.refusal);
    return std::make_unique<scripted_channel>(script_);
  }
  void cancel() noexcept override { script_.is_cancelled = true; }

 private:
  scripted_plugin& script_;
};

struct plugin_world {
  scripted_plugin script;
  std::shared_ptr<plugin_counters> counters = std::make_shared<plugin_counters>();
  plugin_storage storage{{.name = "m\"1", .type = "mooncake", .spec = R"({"protocol":"tcp"})"},
                         std::make_unique<scripted_launcher>(script),
                         {.timeout = 2s, .counters = counters, .clock = [this] { return script.now; }}};

  void answer(std::string text) { script.answers.emplace_back(std::move(text)); }
  void answer_room() { answer(R"({"id":ID,"results":[{"free_bytes":5,"total_bytes":9}]})"); }
  [[nodiscard]] std::vector<result<>> remove(std::size_t count) {
    std::vector<removal_item> items;
    for (std::size_t i = 0; i < count; ++i) items.push_back({.place = "mooncake://m/i/s/" + std::to_string(i)});
    return storage.remove_together(items);
  }
  /// A probe that works, behind the first answer's longer limit.
  void warm_up() {
    answer_room();
    BOOST_TEST_REQUIRE(storage.probe().has_value());
  }
};

bool has_text(const result<>& outcome, std::string_view text) {
  return !outcome && outcome.error().message().find(text) != std::string::npos;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(storages_of_plugins, plugin_world)

BOOST_AUTO_TEST_CASE(a_question_is_a_line_of_json_with_the_storage_and_addresses) {
  answer_room();
  const auto room = storage.probe();
  BOOST_TEST_REQUIRE(room.has_value());
  BOOST_TEST((room->free_bytes == 5U && room->total_bytes == 9U));
  BOOST_TEST(script.questions.at(0) ==
             R"({"id":1,"op":"probe","storage":{"type":"mooncake","global_unique_name":"m\"1",)"
             R"("storage_spec":{"protocol":"tcp"}},"uris":[]})"
             "\n");
  answer(R"({"id":ID,"results":[true,"in use"],"more":{}})");
  const auto removed = remove(2);
  BOOST_TEST_REQUIRE(removed.size() == 2U);
  BOOST_TEST((removed[0].has_value() && has_text(removed[1], "in use")));
  BOOST_TEST(script.questions.at(1).find(R"("id":2,"op":"remove")") != std::string::npos);
  BOOST_TEST(script.questions.at(1).ends_with(R"("uris":["mooncake://m/i/s/0","mooncake://m/i/s/1"]})"
                                              "\n"));
  BOOST_TEST((script.starts == 1 && counters->starts == 1U && counters->failures == 0U));
}

BOOST_AUTO_TEST_CASE(a_failure_that_is_answered_does_not_end_the_plug_in) {
  for (const char* text : {R"({"id":ID,"results":["no master"]})", R"({"id":ID,"error":"no master"})"}) {
    answer(text);
    const auto room = storage.probe();
    BOOST_TEST_REQUIRE(!room.has_value());
    BOOST_TEST(room.error().message() == "no master");
  }
  answer(R"({"id":ID,"error":"no master"})");
  const auto removed = remove(3);
  BOOST_TEST_REQUIRE(removed.size() == 3U);
  for (const auto& each : removed) BOOST_TEST(has_text(each, "no master"));
  answer(R"({"id":ID,"results":[false]})");
  BOOST_TEST(has_text(storage.remove({.place = "x"}), "no reason"));
  BOOST_TEST((script.starts == 1 && script.running == 1 && counters->failures == 0U));
}

BOOST_AUTO_TEST_CASE(a_plug_in_without_a_bound_has_all_room) {
  answer(R"({"id":ID,"results":[true]})");
  const auto room = storage.probe();
  BOOST_TEST_REQUIRE(room.has_value());
  BOOST_TEST(room->total_bytes == 0U);
}

BOOST_AUTO_TEST_CASE(hostile_answers_leave_the_outcome_unknown_and_end_the_plug_in) {
  const std::string deep(2'000, '[');
  const std::vector<std::string> answers{"",
                                         "no json",
                                         "null",
                                         "[]",
                                         "\xff\xfe",
                                         "{",
                                         deep,
                                         R"({"results":[true,true]})",
                                         R"({"id":77,"results":[true,true]})",
                                         R"({"id":-1,"results":[true,true]})",
                                         R"({"id":"ID","results":[true,true]})",
                                         R"({"id":ID})",
                                         R"({"id":ID,"results":true})",
                                         R"({"id":ID,"results":[]})",
                                         R"({"id":ID,"results":[true]})",
                                         R"({"id":ID,"results":[true,true,true]})",
                                         R"({"id":ID,"results":[true,1]})",
                                         R"({"id":ID,"results":[true,null]})",
                                         R"({"id":ID,"results":[{},true]})",
                                         R"({"id":ID,"results":[[true],true]})",
                                         R"({"id":ID,"error":1})",
                                         R"({"id":ID,"results":[true,true]} {})"};
  std::uint64_t failures = 0;
  for (const std::string& text : answers) {
    script.now += plugin_storage::longest_pause;
    answer(text);
    const auto removed = remove(2);
    BOOST_TEST_REQUIRE(removed.size() == 2U);
    for (const auto& each : removed) BOOST_TEST(has_text(each, "the plug-in's answer"), text);
    BOOST_TEST(script.running == 0, text);
    BOOST_TEST(counters->failures == ++failures, text);
  }
}

BOOST_AUTO_TEST_CASE(rooms_that_are_none_are_hostile_too) {
  for (const char* room : {"{}", R"({"free_bytes":1})", R"({"free_bytes":-1,"total_bytes":2})", "7",
                           R"({"free_bytes":"1","total_bytes":2})", R"({"free_bytes":1.5,"total_bytes":2})", "null"}) {
    script.now += plugin_storage::longest_pause;
    answer(std::string(R"({"id":ID,"results":[)") + room + "]}");
    BOOST_TEST(!storage.probe().has_value(), room);
    BOOST_TEST(script.running == 0, room);
  }
}

BOOST_AUTO_TEST_CASE(reasons_are_cut) {
  answer(R"({"id":ID,"results":[")" + std::string(5'000, 'x') + R"("]})");
  BOOST_TEST(storage.remove({.place = "x"}).error().message().size() == plugin_storage::longest_reason);
}

BOOST_AUTO_TEST_CASE(only_the_first_answer_of_a_program_has_time_to_start) {
  warm_up();
  warm_up();
  script.answers.emplace_back(fail(error_code::deadline_exceeded, "it hangs"));
  BOOST_TEST(!storage.probe().has_value());
  script.now += plugin_storage::first_pause;
  warm_up();
  const std::vector<std::chrono::milliseconds> expected{plugin_storage::start_limit, 2s, 2s,
                                                        plugin_storage::start_limit};
  BOOST_TEST((script.limits == expected));
}

BOOST_AUTO_TEST_CASE(a_plug_in_that_fails_is_started_again_behind_a_pause_that_doubles) {
  std::chrono::milliseconds pause = plugin_storage::first_pause;
  for (int i = 1; i < 12; ++i) {
    script.answers.emplace_back(fail(error_code::not_running, "it has died"));
    BOOST_TEST(!storage.probe().has_value());
    BOOST_TEST(script.starts == i);
    script.now += pause - 1ms;
    const auto early = storage.probe();
    BOOST_TEST_REQUIRE(!early.has_value());
    BOOST_TEST(early.error().message().find("it has died") != std::string::npos);
    BOOST_TEST(has_text(storage.remove({.place = "x"}), "it has died"));
    BOOST_TEST(script.starts == i);
    script.now += 1ms;
    pause = std::min(2 * pause, plugin_storage::longest_pause);
  }
  BOOST_TEST((pause == plugin_storage::longest_pause));
  warm_up();  // and a sound answer makes the pause short again
  script.answers.emplace_back(fail(error_code::not_running, "it has died"));
  BOOST_TEST(!storage.probe().has_value());
  script.now += plugin_storage::first_pause;
  warm_up();
}

BOOST_AUTO_TEST_CASE(a_program_that_cannot_be_started_is_named_and_tried_again) {
  script.refusal = error(error_code::invalid_config, "`/nowhere` is no program");
  for (int i = 1; i < 4; ++i) {
    const auto probed = storage.probe();
    BOOST_TEST_REQUIRE(!probed.has_value());
    BOOST_TEST(probed.error().message().find("/nowhere") != std::string::npos);
    BOOST_TEST(script.starts == i);
    script.now += plugin_storage::longest_pause;
  }
  BOOST_TEST((counters->starts == 3U && counters->failures == 3U));
  script.refusal.reset();
  warm_up();
}

BOOST_AUTO_TEST_CASE(what_is_cancelled_counts_as_no_failure_of_the_plug_in) {
  storage.cancel();
  BOOST_TEST(script.is_cancelled);
  script.answers.emplace_back(fail(error_code::closed, "given up"));
  BOOST_TEST(!storage.probe().has_value());
  BOOST_TEST((counters->failures == 0U && script.running == 0));
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
