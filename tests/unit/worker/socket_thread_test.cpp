// The thread of all sockets: one slow actor must not delay every client.
#include <boost/test/unit_test.hpp>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>
#include <string>

namespace cenote::socket_thread_test {

namespace {

/// Sources of the worker that run on other threads.
const std::map<std::string, std::string> with_own_thread{
    {"worker.cpp", "the worker's main thread"},
    {"device_host.cpp", "a thread for each device that is opened"},
};

std::string text_of(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

BOOST_AUTO_TEST_SUITE(socket_thread)

/// ask() of actors/ask.hpp waits; ask_then() does not.
BOOST_AUTO_TEST_CASE(nothing_on_the_thread_of_all_sockets_waits_for_an_actor) {
  static const std::regex question(R"((^|[^\w])ask<)");
  std::size_t read = 0;
  for (const auto& each : std::filesystem::directory_iterator(std::filesystem::path(CENOTE_SOURCE_DIR) / "worker")) {
    const std::string name = each.path().filename();
    const auto extension = each.path().extension();
    if ((extension != ".cpp" && extension != ".hpp") || with_own_thread.contains(name)) continue;
    ++read;
    const std::string text = text_of(each.path());
    BOOST_TEST(!std::regex_search(text, question), name << " asks an actor and waits: see ask_then()");
  }
  BOOST_TEST(read > 10U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::socket_thread_test
