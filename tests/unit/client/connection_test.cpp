// The socket of a session, shared by threads that have more or less time.
#include <sys/socket.h>

#include <atomic>
#include <boost/test/unit_test.hpp>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>

#include "client/connection.hpp"
#include "client/slab_map.hpp"
#include "tests/unit/client/session_fixture.hpp"
#include "transport/local/socket.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

client::time_point in(milliseconds time) {
  return std::chrono::steady_clock::now() + time;
}

/// A thread that looks for the next worker: it finds somebody who accepts, and says nothing.
struct reattach_fixture {
  reattach_fixture() {
    BOOST_REQUIRE(::mkdtemp(folder.data()) != nullptr);
    const std::string path = folder + "/cenote.sock";
    listener = must(local::listen_at(path));
    int pair[2] = {-1, -1};
    BOOST_REQUIRE_EQUAL(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    worker = unique_fd(pair[1]);
    socket.emplace(path, unique_fd(pair[0]), local::attach_reply{});
    looking = std::thread([this] {
      outcome = socket->reattach({}, in(seconds(60)), given_up);
      is_over = true;
    });
    while (!caller) {
      if (auto came = must(local::accept_one(listener.get()))) caller = std::move(*came);
      std::this_thread::yield();
    }
  }
  reattach_fixture(const reattach_fixture&) = delete;
  reattach_fixture& operator=(const reattach_fixture&) = delete;
  ~reattach_fixture() {
    if (looking.joinable()) end();
  }
  void end() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
    listener.reset();
    caller.reset();
    looking.join();
  }
  result<void> fetch() { return socket->fetch_slabs({1}, owner.versions(), slabs, in(milliseconds(5))); }

  local_owner owner{8, part_bytes, 8};
  client::slab_map slabs;
  std::string folder = (std::filesystem::temp_directory_path() / "cenote-test-XXXXXX").native();
  unique_fd listener, caller, worker;
  std::optional<client::connection> socket;
  std::atomic<bool> given_up{false}, is_over{false};
  result<void> outcome;
  std::thread looking;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(connections)

BOOST_FIXTURE_TEST_CASE(no_call_waits_longer_than_it_has_behind_one_that_looks_for_the_next_worker, reattach_fixture) {
  BOOST_TEST((code_of(fetch()) == error_code::deadline_exceeded));
  BOOST_TEST((code_of(socket->detach(in(milliseconds(5)))) == error_code::deadline_exceeded));
  BOOST_TEST((code_of(socket->reattach({}, in(milliseconds(5)), given_up)) == error_code::node_restarting));
  worker.reset();
  BOOST_TEST((code_of(fetch()) == error_code::node_restarting), "that is why");
  BOOST_TEST(!is_over);
  end();
  BOOST_TEST((code_of(outcome) == error_code::not_running));
}

BOOST_FIXTURE_TEST_CASE(who_looks_for_the_next_worker_stops_when_nobody_wants_it, reattach_fixture) {
  given_up = true;
  looking.join();
  BOOST_TEST((code_of(outcome) == error_code::closed));
}

BOOST_FIXTURE_TEST_CASE(a_worker_that_answers_late_is_met_all_the_same, reattach_fixture) {
  std::optional<local::frame> asked;
  while (!asked) asked = must(local::try_receive_frame(caller.get()));
  BOOST_TEST((asked->header.type == local::frame_type::reattach));
  BOOST_TEST((code_of(fetch()) == error_code::deadline_exceeded), "it is still awaited");
  must(local::send_frame(caller.get(), local::reply_to(asked->header, local::frame_type::reattach_reply), {}, {},
                         in(seconds(60))));
  looking.join();
  BOOST_TEST(outcome.has_value());
  BOOST_TEST(!socket->hung_up());
}

BOOST_AUTO_TEST_SUITE_END()
