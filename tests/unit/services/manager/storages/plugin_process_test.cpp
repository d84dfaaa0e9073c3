// Plug-ins as real processes: what they answer, how they end, and that nothing of them is left.
#include "services/manager/storages/plugin_process.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <thread>

#include "tests/unit/services/manager/own_folder.hpp"

namespace cenote::manager {

using namespace std::chrono_literals;

namespace {

const auto far_away = std::chrono::steady_clock::now() + 1h;

/// A plug-in in a few words of a shell.
struct process_world {
  test::own_folder folder;
  std::unique_ptr<plugin_program> program;
  std::unique_ptr<plugin_channel> channel;

  void start(const std::string& script) {
    const std::string path = folder.path() / "plugin.sh";
    std::ofstream(path) << script << "\n";
    program = *plugin_program::make("/bin/sh " + path, "s1");
    auto started = program->start();
    BOOST_TEST_REQUIRE(started.has_value());
    channel = std::move(*started);
  }
  [[nodiscard]] error_code code_of_ask(const std::string& line = "x\n") {
    const auto answer = channel->ask(line, far_away);
    return answer ? error_code::ok : answer.error().code();
  }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(processes_of_plugins, process_world)

BOOST_AUTO_TEST_CASE(each_line_is_answered_by_a_line) {
  start(R"(while read -r line; do echo "noise" >&2; echo "<$line>"; done)");
  for (const std::string text : {"a", "b c", ""}) {
    const auto answer = channel->ask(text + "\n", far_away);
    BOOST_TEST_REQUIRE(answer.has_value());
    BOOST_TEST(*answer == "<" + text + ">");
  }
}

BOOST_AUTO_TEST_CASE(long_lines_go_both_ways) {
  start(R"(while read -r line; do echo "$line"; done)");
  const std::string text(300'000, 'x');
  BOOST_TEST((channel->ask(text + "\n", far_away) == text));
}

BOOST_AUTO_TEST_CASE(an_end_is_told_with_its_status) {
  start("read -r line; exit 3");
  const auto answer = channel->ask("x\n", far_away);
  BOOST_TEST_REQUIRE(!answer.has_value());
  BOOST_TEST((answer.error().code() == error_code::not_running));
  BOOST_TEST(answer.error().message().find("exit status 3") != std::string::npos, answer.error().message());
}

BOOST_AUTO_TEST_CASE(silence_ends_with_the_deadline) {
  start("exec sleep 1000");
  const auto answer = channel->ask("x\n", std::chrono::steady_clock::now());
  BOOST_TEST_REQUIRE(!answer.has_value());
  BOOST_TEST((answer.error().code() == error_code::deadline_exceeded));
}

BOOST_AUTO_TEST_CASE(a_program_that_reads_nothing_does_not_hold_up_a_long_question) {
  start("exec sleep 1000");
  const std::string line(4'000'000, 'x');
  const auto answer = channel->ask(line, std::chrono::steady_clock::now() + 20ms);
  BOOST_TEST_REQUIRE(!answer.has_value());
  BOOST_TEST((answer.error().code() == error_code::deadline_exceeded));
}

BOOST_AUTO_TEST_CASE(a_line_without_an_end_is_bounded) {
  start("read -r line; exec cat /dev/zero");
  BOOST_TEST((code_of_ask() == error_code::malformed));
}

BOOST_AUTO_TEST_CASE(more_than_a_line_is_refused) {
  start("read -r line; printf 'a\\nb\\n'; exec sleep 1000");
  BOOST_TEST((code_of_ask() == error_code::malformed));
}

BOOST_AUTO_TEST_CASE(a_flood_of_errors_delays_no_answer) {
  start(R"(head -c 3000000 /dev/zero | tr '\0' 'e' >&2; read -r line; echo "$line")");
  BOOST_TEST((channel->ask("x\n", far_away) == "x"));
}

BOOST_AUTO_TEST_CASE(its_whole_group_is_killed_with_it) {
  start("sleep 1000 & read -r line; echo $!; read -r line");
  const auto answer = channel->ask("x\n", far_away);
  BOOST_TEST_REQUIRE(answer.has_value());
  const auto child = static_cast<pid_t>(std::stol(*answer));
  BOOST_TEST(::kill(child, 0) == 0);
  channel.reset();
  // Its new parent reaps it: until then it is a process that has ended.
  const auto is_gone = [&] {
    std::ifstream status("/proc/" + std::to_string(child) + "/stat");
    std::string number, name, state;
    return !(status >> number >> name >> state) || state == "Z" || state == "X";
  };
  while (!is_gone()) std::this_thread::yield();
  BOOST_TEST(is_gone());
}

BOOST_AUTO_TEST_CASE(a_program_that_is_stopped_is_killed) {
  start("kill -STOP $$");
  BOOST_TEST(!channel->ask("x\n", std::chrono::steady_clock::now() + 10ms).has_value());
  channel.reset();
  BOOST_TEST(::waitpid(-1, nullptr, WNOHANG) == -1);
  BOOST_TEST(errno == ECHILD);
}

BOOST_AUTO_TEST_CASE(a_question_that_waits_is_cancelled) {
  start("exec sleep 1000");
  std::thread other([this] { program->cancel(); });
  BOOST_TEST((code_of_ask() == error_code::closed));
  other.join();
  BOOST_TEST((code_of_ask() == error_code::closed));
}

BOOST_AUTO_TEST_CASE(no_other_descriptor_comes_through_and_the_environment_does) {
  ::setenv("CENOTE_TEST_WORD", "kept", 1);
  const int leak = ::fcntl(STDIN_FILENO, F_DUPFD, 57);  // without close-on-exec
  BOOST_TEST_REQUIRE(leak >= 57);
  start("read -r line; test -e /proc/$$/fd/" + std::to_string(leak) + " && echo leaks || echo $CENOTE_TEST_WORD");
  const auto answer = channel->ask("x\n", far_away);
  ::close(leak);
  BOOST_TEST_REQUIRE(answer.has_value());
  BOOST_TEST(*answer == "kept");
}

BOOST_AUTO_TEST_CASE(what_is_no_program_is_named) {
  for (const std::string command : {"/nowhere/plugin x", "", "  ", "/etc", "/etc/passwd"}) {
    const auto started = (*plugin_program::make(command, "s1"))->start();
    BOOST_TEST_REQUIRE(!started.has_value());
    BOOST_TEST(started.error().message().find("`" + command + "`") != std::string::npos, started.error().message());
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::manager
