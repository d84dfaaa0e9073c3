// The tokenizer as a child, with a script in its place; the time is an argument.
#include "services/indexer/text/tokenizer_process.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <boost/test/unit_test.hpp>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>

#include "core/unique_fd.hpp"
#include "tests/unit/services/indexer/text/own_folder.hpp"

namespace cenote::indexer::tokenizer_process_test {

namespace {

using namespace std::chrono_literals;
using time_point = tokenizer_process::time_point;

struct fixture {
  own_folder folder;
  std::filesystem::path script = folder.path() / "tokenizer";
  std::filesystem::path words = folder.path() / "words";
  time_point now{};

  /// A program that appends a line to `words`, by `body`, and goes on until it is ended.
  void write_script(const std::string& body) const {
    std::ofstream(script) << "#!/bin/sh\n" << body << " >> " << words.string() << "\nexec sleep 1000\n";
    ::chmod(script.c_str(), 0700);
  }

  /// The text that the script has written; waits until there are `lines`.
  std::string written(std::ptrdiff_t lines) const {
    while (true) {
      std::ostringstream text;
      text << std::ifstream(words).rdbuf();
      if (std::ranges::count(text.str(), '\n') >= lines) return text.str();
      std::this_thread::sleep_for(1ms);
    }
  }

  /// Kills the child that has written the last line, its number, and looks until that is known.
  void kill_child(tokenizer_process& process, std::ptrdiff_t lines) const {
    std::istringstream text(written(lines));
    pid_t pid = 0;
    for (pid_t each = 0; text >> each;) pid = each;
    ::kill(pid, SIGKILL);
    while (::kill(pid, 0) == 0) process.look(now);
  }

  std::ptrdiff_t starts() const { return std::ranges::count(written(0), '\n'); }
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(tokenizer_process_suite, fixture)

BOOST_AUTO_TEST_CASE(the_settings_become_arguments) {
  write_script("echo \"$@\"");
  const auto process = tokenizer_process::start({.command = "  " + script.string() + "  -v ",
                                                 .socket = "/s",
                                                 .models = {"a=/a", "b=/b"},
                                                 .directories = {"/d e"},
                                                 .hub = true,
                                                 .cache = 3,
                                                 .workers = 4},
                                                now);
  BOOST_TEST_REQUIRE(process.has_value());
  BOOST_TEST(written(1) == "-v --socket /s --model a=/a --model b=/b --directory /d e --hub --cache 3 --workers 4\n");
  BOOST_TEST(process->socket() == "/s");
}

BOOST_AUTO_TEST_CASE(without_a_socket_it_has_one_in_a_folder_of_its_own_which_goes_with_it) {
  write_script("echo");
  std::filesystem::path socket;
  {
    const auto process = tokenizer_process::start({.command = script.string()}, now);
    BOOST_TEST_REQUIRE(process.has_value());
    socket = process->socket();
    struct stat status {};
    BOOST_TEST(::stat(socket.parent_path().c_str(), &status) == 0);
    BOOST_TEST((status.st_mode & 0777U) == 0700U);
  }
  BOOST_TEST(!std::filesystem::exists(socket.parent_path()));
}

BOOST_AUTO_TEST_CASE(a_program_that_is_not_there_is_refused) {
  for (const std::string command : {" ", "no-such-program-here", "/no/such/program -m x"}) {
    const auto process = tokenizer_process::start({.command = command, .socket = "/s"}, now);
    BOOST_TEST_REQUIRE(!process.has_value());
    BOOST_TEST((process.error().code() == error_code::invalid_config));
    BOOST_TEST(process.error().message().contains("tokenizer.command"));
  }
  BOOST_TEST(tokenizer_process::start({.command = "sleep 1000", .socket = "/s"}, now).has_value());
}

BOOST_AUTO_TEST_CASE(one_that_dies_is_started_again_behind_pauses_that_grow) {
  write_script("echo $$");
  auto process = tokenizer_process::start({.command = script.string(), .socket = "/s"}, now);
  BOOST_TEST_REQUIRE(process.has_value());
  auto pause = tokenizer_process::first_delay;
  for (std::ptrdiff_t count = 1; count < 4; ++count) {
    kill_child(*process, count);
    process->look(now + pause - 1ns);
    BOOST_TEST(starts() == count);
    now += pause;
    process->look(now);
    (void)written(count + 1);
    pause *= 2;
  }
  now += tokenizer_process::steady_life;
  kill_child(*process, 4);
  now += tokenizer_process::first_delay;
  process->look(now);
  (void)written(5);
}

BOOST_AUTO_TEST_CASE(it_has_no_descriptor_of_its_parent) {
  const unique_fd open_file(::open("/dev/null", O_RDONLY));  // without O_CLOEXEC, as a library may
  write_script("echo :$(test -e /proc/$$/fd/" + std::to_string(open_file.get()) + " && echo there)");
  const auto process = tokenizer_process::start({.command = script.string(), .socket = "/s"}, now);
  BOOST_TEST_REQUIRE(process.has_value());
  BOOST_TEST(written(1).ends_with(":\n"));
}

BOOST_AUTO_TEST_CASE(it_ends_with_its_owner_though_it_is_stopped) {
  write_script("echo $$");
  pid_t pid = 0;
  {
    const auto process = tokenizer_process::start({.command = script.string(), .socket = "/s"}, now);
    BOOST_TEST_REQUIRE(process.has_value());
    pid = std::stoi(written(1));
    ::kill(pid, SIGSTOP);
  }
  BOOST_TEST(::kill(pid, 0) != 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::indexer::tokenizer_process_test
