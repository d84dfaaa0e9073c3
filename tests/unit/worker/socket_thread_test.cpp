// The thread of all sockets: one slow actor must not delay every client.
#include <boost/test/unit_test.hpp>

#include <map>
#include <regex>
#include <string>

#include "tests/support/product_sources.hpp"

namespace cenote::socket_thread_test {

namespace {

/// Sources of the worker that run on other threads.
const std::map<std::string, std::string> with_own_thread{
    {"worker/worker.cpp", "the worker's main thread"},
    {"worker/device_host.cpp", "a thread for each device that is opened"},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(socket_thread)

/// ask() of actors/ask.hpp waits; ask_then() does not.
BOOST_AUTO_TEST_CASE(nothing_on_the_thread_of_all_sockets_waits_for_an_actor,
                     *boost::unit_test::enable_if<testing::reads_sources>()) {
  static const std::regex question(R"((^|[^\w])ask<)");
  std::size_t read = 0;
  for (const auto& [path, text] : testing::product_sources({"worker"})) {
    if (with_own_thread.contains(path)) continue;
    ++read;
    BOOST_TEST(!std::regex_search(text, question), path << " asks an actor and waits: see ask_then()");
  }
  BOOST_TEST(read > 10U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace cenote::socket_thread_test
