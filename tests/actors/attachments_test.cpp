#include "worker/attachments.hpp"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <future>
#include <type_traits>
#include <utility>

#include "tests/actors/actor_fixture.hpp"

using namespace cenote;
using namespace cenote::testing;

namespace {

struct socket_pair {
  socket_pair() {
    std::array<int, 2> ends{};
    BOOST_REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    server = unique_fd(ends[0]);
    client = unique_fd(ends[1]);
  }
  unique_fd server, client;
};

/// A worker's attachments whose actors work only in run(); the keeper is gone. The client is this process.
struct attachments_fixture : actor_fixture {
  /// Runs `work` on the thread of sockets, behind all that was posted before.
  template <class Work>
  auto on_loop(Work work) {
    std::packaged_task<std::invoke_result_t<Work>()> task(std::move(work));
    loop->post([&task] { task(); });
    return task.get_future().get();
  }

  attachments_fixture() {
    provide_memory();
    supervisor = system().spawn<node>(dram(), prefetch(), [](const std::string& why) { BOOST_TEST(why.empty(), why); });
    context.dram = dram();
    context.node = supervisor;
    run();
  }
  ~attachments_fixture() {
    on_loop([this] { parts.reset(); });
    loop->stop();
    path->stop();
    caf::anon_send_exit(supervisor, caf::exit_reason::user_shutdown);
    context.dram = nullptr;
    context.node = supervisor = nullptr;
    run();
  }

  /// A session that an earlier worker made for `call` of this process.
  std::shared_ptr<session_resources> earlier_session(std::uint64_t number, std::uint64_t call) {
    auto made = make_client(number);
    made->attach_call = call;
    made->pid = ::getpid();
    made->uid = ::geteuid();
    made->gid = ::getegid();
    made->pidfd = unique_fd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
    return made;
  }
  void adopt(const std::shared_ptr<session_resources>& session) {
    on_loop([&] { parts->adopt(session); });
  }
  result<void> attach(std::uint64_t call) {
    local::attach_request request;
    request.spec = small_spec();
    request.call = call;
    local::frame frame;
    frame.header.type = local::frame_type::attach;
    frame.payload = local::encode(request, local::protocol_minor);
    return on_loop([&] { return parts->attach(client, frame); });
  }
  void run_all() {
    run();
    on_loop([] {});
    run();
  }
  /// Sessions of the tier.
  std::size_t sessions() {
    run_all();
    const auto report = ask<report_ptr>(supervisor, report_atom_v);
    BOOST_REQUIRE(report);
    return (*report)->sessions.size();
  }

  socket_pair ends;
  connection client{.socket = std::move(ends.server),
                    .peer = {::getpid(), ::geteuid(), ::getegid()},
                    .out = local::outbox(ends.server.get())};
  local::keeper_link keeper{socket_pair().server};
  node_actor supervisor;
  std::unique_ptr<data_path> path = data_path::start(system(), {}).value();
  std::shared_ptr<local::event_loop> loop{local::event_loop::start("test-sockets").value()};
  server_context context{system(), keeper, *path, {}, {}, 0, {}, 0, {}};
  current_config config{std::make_shared<const config::node_config>(config::default_config())};
  std::unique_ptr<attachments> parts = std::make_unique<attachments>(
      context, config, loop,
      attachments::connection_hooks{
          .ended = [](int) {}, .replaced = [](int) {}, .answer = [](const auto&, const auto&) {}});
};

}  // namespace

BOOST_AUTO_TEST_SUITE(attachments_tests)

BOOST_FIXTURE_TEST_CASE(an_attach_is_repeated_until_the_session_of_its_earlier_attempt_can_end, attachments_fixture) {
  const auto first = earlier_session(5, 77);
  adopt(first);
  const auto early = attach(77);
  BOOST_TEST_REQUIRE(!early.has_value());
  BOOST_CHECK(early.error().code() == error_code::node_restarting);
  BOOST_TEST(sessions() == 1U);
  BOOST_TEST(attach(77).has_value());
  BOOST_TEST(sessions() == 0U);
}

BOOST_FIXTURE_TEST_CASE(an_attach_waits_for_no_session_of_another_call, attachments_fixture) {
  adopt(earlier_session(5, 77));
  BOOST_TEST(attach(78).has_value());
  BOOST_TEST(sessions() == 1U);
}

BOOST_FIXTURE_TEST_CASE(sessions_that_are_being_taken_over_count_among_those_of_their_user, attachments_fixture) {
  auto few = std::make_shared<config::node_config>(config::default_config());
  few->limits.sessions_per_uid = 1;
  config.replace(few);
  adopt(earlier_session(5, 77));
  const auto early = attach(78);
  BOOST_TEST_REQUIRE(!early.has_value());
  BOOST_CHECK(early.error().code() == error_code::node_restarting);  // one may go as it is taken over
  BOOST_TEST(sessions() == 1U);
  const auto refused = attach(78);
  BOOST_TEST_REQUIRE(!refused.has_value());
  BOOST_CHECK(refused.error().code() == error_code::limit_exceeded);
}

BOOST_FIXTURE_TEST_CASE(a_client_that_closed_its_session_while_no_worker_lived_may_attach_at_once,
                        attachments_fixture) {
  auto few = std::make_shared<config::node_config>(config::default_config());
  few->limits.sessions_per_uid = 1;
  config.replace(few);
  const auto closed = earlier_session(5, 77);
  closed->view.header().departure = 1;
  adopt(closed);
  BOOST_TEST(sessions() == 0U);
  const auto used = earlier_session(6, 78);
  adopt(used);
  BOOST_TEST(sessions() == 1U);
  used->view.header().departure = 1;
  BOOST_TEST(attach(79).has_value());
}

BOOST_FIXTURE_TEST_CASE(a_session_that_its_client_closed_while_no_worker_lived_ends, attachments_fixture) {
  const auto closed = earlier_session(5, 77);
  const auto used = earlier_session(6, 78);
  adopt(closed);
  adopt(used);
  BOOST_TEST(sessions() == 2U);
  on_loop([this] { parts->tick(); });
  BOOST_TEST(sessions() == 2U);
  closed->view.header().departure = 1;
  on_loop([this] { parts->tick(); });
  BOOST_TEST(sessions() == 1U);
}

BOOST_AUTO_TEST_SUITE_END()
