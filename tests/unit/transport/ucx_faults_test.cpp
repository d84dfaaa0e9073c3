// Networks of other processes that are killed or stopped, in every state of a link: this one goes on.
#include <boost/test/unit_test.hpp>

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "core/random_number.hpp"
#include "core/unique_fd.hpp"
#include "tests/support/folders.hpp"
#include "tests/support/network_peer.hpp"
#include "tests/unit/transport/station.hpp"
#include "transport/ucx/links.hpp"
#include "transport/ucx/piece.hpp"

extern char** environ;

namespace {

using namespace cenote;
using testing::station;

/// A process of network_peer; ends with this object.
class other_node {
 public:
  explicit other_node(std::vector<std::string> arguments) {
    std::array<int, 2> in{}, out{};
    BOOST_REQUIRE(::pipe2(in.data(), O_CLOEXEC) == 0 && ::pipe2(out.data(), O_CLOEXEC) == 0);
    arguments.insert(arguments.begin(), cenote::testing::program_folder() / "network_peer");
    std::vector<char*> words;
    for (std::string& each : arguments) words.push_back(each.data());
    words.push_back(nullptr);
    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_adddup2(&files, in[0], STDIN_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, out[1], STDOUT_FILENO);
    BOOST_REQUIRE(::posix_spawn(&pid_, words[0], &files, nullptr, words.data(), environ) == 0);
    ::posix_spawn_file_actions_destroy(&files);
    ::close(in[0]);
    ::close(out[1]);
    input_ = unique_fd(in[1]);
    output_ = unique_fd(out[0]);
  }
  other_node(const other_node&) = delete;
  other_node& operator=(const other_node&) = delete;
  ~other_node() { (void)end(SIGKILL); }

  /// Where it is, and where it takes connections for blocks.
  [[nodiscard]] std::pair<endpoint, endpoint> read_places() const {
    std::string line;
    for (char each = 0; ::read(output_.get(), &each, 1) == 1 && each != '\n';) line += each;
    const auto space = line.find(' ');
    BOOST_REQUIRE(space != std::string::npos);
    return {*parse_endpoint(line.substr(0, space)), *parse_endpoint(line.substr(space + 1))};
  }
  void signal(int which) const { ::kill(pid_, which); }
  /// The status as waitpid() has it.
  int end(int with) {
    if (pid_ <= 0) return 0;
    ::kill(pid_, with);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return status;
  }

 private:
  pid_t pid_ = -1;
  unique_fd input_, output_;
};

/// How far a link has come when its other end dies.
enum class moment { spawned, opened, joined, in_transfer, closing };

void short_while() {
  std::this_thread::sleep_for(std::chrono::microseconds(random_number() % 4000));
}

unsigned rounds() {
  return std::getenv("CENOTE_TEST_FULL") == nullptr ? 8 : 110;
}

/// A station that sends four blocks to whoever asks.
struct server {
  server() {
    here.on_frame = [this](peer::link_id from, std::span<const std::byte> frame) {
      if (const auto proof = testing::ticket_in(frame)) return here.net->await_blocks(from, *proof);
      for (std::uint64_t i = 0; i < 4; ++i) here.net->send_block(from, {.token = i}, block);
      asked += 4;
    };
  }

  std::vector<std::byte> block = testing::block_pattern(2 << 20);
  std::size_t asked = 0;  ///< under here.mutex
  station here;
};

/// A library whose closes and sends end with end_all().
struct stalled_library {
  static inline std::vector<ucp_am_handler_param_t> handlers;
  static inline std::vector<std::pair<ucp_send_nbx_callback_t, void*>> sends;
  static inline std::array<char, 8> endpoints{};  ///< their addresses
  static inline std::size_t endpoint_count = 0;
  static inline bool is_ended = false;

  static std::shared_ptr<const ucx::library> make() {
    handlers.clear();
    sends.clear();
    endpoint_count = 0;
    is_ended = false;
    ucx::library all;
    all.ucp_worker_set_am_recv_handler = [](ucp_worker_h, const ucp_am_handler_param_t* params) {
      handlers.push_back(*params);
      return UCS_OK;
    };
    all.ucp_ep_create = [](ucp_worker_h, const ucp_ep_params_t*, ucp_ep_h* endpoint) {
      *endpoint = endpoint_at(endpoint_count++);
      return UCS_OK;
    };
    all.ucp_ep_flush_nbx = [](ucp_ep_h, const ucp_request_param_t*) -> ucs_status_ptr_t { return nullptr; };
    all.ucp_ep_close_nbx = [](ucp_ep_h, const ucp_request_param_t*) -> ucs_status_ptr_t { return &endpoint_count; };
    all.ucp_am_send_nbx = [](ucp_ep_h, unsigned, const void*, std::size_t, const void*, std::size_t,
                             const ucp_request_param_t* params) -> ucs_status_ptr_t {
      sends.emplace_back(params->cb.send, params->user_data);
      return &endpoint_count;
    };
    all.ucp_request_check_status = [](void*) { return is_ended ? UCS_OK : UCS_INPROGRESS; };
    all.ucp_request_free = [](void*) {};
    return std::make_shared<const ucx::library>(all);
  }
  static ucp_ep_h endpoint_at(std::size_t number) { return reinterpret_cast<ucp_ep_h>(&endpoints.at(number)); }
  /// The other side's answer to the ticket on a connection for blocks.
  static void answer_ticket(std::size_t number) {
    const std::vector<std::byte> ticket = ucx::encode(peer::ticket{});
    std::vector<std::byte> bytes = ticket;
    ucp_am_recv_param_t how{};
    how.recv_attr = UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
    how.reply_ep = endpoint_at(number);
    for (const auto& each : handlers) each.cb(each.arg, nullptr, 0, bytes.data(), bytes.size(), &how);
  }
  static void end_all() {
    is_ended = true;
    for (const auto& [call, argument] : std::exchange(sends, {})) call(&endpoint_count, UCS_ERR_CANCELED, argument);
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(ucx_faults)

BOOST_AUTO_TEST_CASE(a_close_that_ucx_does_not_end_is_said_in_time_and_its_memory_kept_until_it_has_ended) {
  const socket_address where = *numeric_address({"127.0.0.1", 1});
  std::vector<peer::link_id> closed;
  std::vector<std::uint64_t> sent;
  peer::network_events events;
  events.opened = [](peer::link_id, bool, const endpoint&) {};
  events.closed = [&](peer::link_id which, const error&) { closed.push_back(which); };
  events.carries_blocks = [](peer::link_id) {};
  events.sent = [&](peer::link_id, std::uint64_t token, const result<void>&) { sent.push_back(token); };
  ucx::links all(stalled_library::make(), nullptr, nullptr, events, [] { return peer::link_id{9}; });
  const auto start = ucx::links::clock::now();
  all.dial(1, {"127.0.0.1", 1}, where);
  all.join_blocks(1, where, peer::ticket{});
  stalled_library::answer_ticket(1);
  const std::vector<std::byte> block(4096);
  all.send_block(1, {.token = 7}, block);
  (void)all.tend(start);
  all.close(1, error(error_code::closed, "the test's"));
  (void)all.tend(start);
  BOOST_TEST(closed.empty());
  BOOST_REQUIRE(all.wake_at());
  BOOST_TEST((*all.wake_at() <= ucx::links::clock::now() + ucx::links::close_limit));
  (void)all.tend(*all.wake_at());
  BOOST_TEST(closed == std::vector<peer::link_id>{1});
  BOOST_TEST(sent.empty());
  BOOST_TEST(!all.wake_at());
  BOOST_TEST(all.odd().unended_closes == 1U);
  all.dial(2, {"127.0.0.1", 1}, where);  // the same node again
  stalled_library::end_all();
  (void)all.tend();
  BOOST_TEST(closed == std::vector<peer::link_id>{1});
  BOOST_TEST(sent == std::vector<std::uint64_t>{7});
  all.close_all(error(error_code::closed, "the test ends"));
  (void)all.tend();
  BOOST_TEST(all.is_empty());
}

BOOST_AUTO_TEST_CASE(a_fetching_node_may_be_killed_at_any_moment) {
  server self;
  station& here = self.here;
  for (unsigned round = 0; round < rounds(); ++round) {
    for (const moment when : {moment::spawned, moment::opened, moment::joined, moment::in_transfer, moment::closing}) {
      const std::size_t links = here.count(&station::accepted), joined = here.count(&station::carrying);
      const std::size_t sent = here.count(&station::sent);
      other_node fetcher({"fetch", here.net->where().text(), here.net->blocks_at().text(), "2097152"});
      if (when >= moment::opened) BOOST_REQUIRE(here.wait([&] { return here.accepted.size() > links; }));
      if (when >= moment::joined) BOOST_REQUIRE(here.wait([&] { return here.carrying.size() > joined; }));
      if (when >= moment::in_transfer) BOOST_REQUIRE(here.wait([&] { return here.sent.size() > sent + 8; }));
      if (when == moment::closing) here.net->close(here.accepted.back(), error(error_code::closed, "the test's"));
      short_while();
      BOOST_TEST(WTERMSIG(fetcher.end(SIGKILL)) == SIGKILL);
      BOOST_REQUIRE(here.wait([&] { return here.closed.size() == here.accepted.size(); }));
    }
  }
  BOOST_REQUIRE(here.wait([&] { return here.sent.size() == self.asked; }));
  BOOST_TEST_MESSAGE(here.accepted.size() << " links, " << self.asked << " blocks");
}

BOOST_AUTO_TEST_CASE(a_serving_node_may_be_killed_at_any_moment) {
  station here;
  for (unsigned round = 0; round < rounds(); ++round) {
    for (const moment when : {moment::spawned, moment::opened, moment::joined, moment::in_transfer, moment::closing}) {
      const std::size_t links = here.count(&station::dialled), joined = here.count(&station::carrying);
      const std::size_t landed = here.all_landed();
      other_node other({"serve"});
      const auto [where, blocks_at] = other.read_places();
      const auto which = here.net->dial(where);
      if (when >= moment::opened) BOOST_REQUIRE(here.wait([&] { return here.dialled.size() > links; }));
      if (when >= moment::joined) {
        const auto proof = testing::new_ticket();
        here.net->send(which, testing::frame_of(proof));
        here.net->join_blocks(which, blocks_at, proof);
        BOOST_REQUIRE(here.wait([&] { return here.carrying.size() > joined; }));
      }
      if (when >= moment::in_transfer) {
        std::vector<std::byte> request(8);
        request[2] = std::byte{0x20};  // 2 MiB, little endian
        here.net->send(which, request);
        BOOST_REQUIRE(here.wait([&] { return here.landed_bytes > landed + (1 << 20); }));
      }
      if (when == moment::closing) here.net->close(which, error(error_code::closed, "the test's"));
      short_while();
      BOOST_TEST(WTERMSIG(other.end(SIGKILL)) == SIGKILL);
      BOOST_REQUIRE(here.wait([&] { return here.has_closed(which); }));
    }
  }
}

BOOST_AUTO_TEST_CASE(a_node_that_stands_still_keeps_no_memory_once_its_link_is_closed) {
  server self;
  station& here = self.here;
  const other_node fetcher({"fetch", here.net->where().text(), here.net->blocks_at().text(), "2097152"});
  BOOST_REQUIRE(here.wait([&] { return here.sent.size() > 8; }));
  fetcher.signal(SIGSTOP);
  const auto which = here.accepted.front();
  for (std::uint64_t i = 0; i < 16; ++i) here.net->send_block(which, {.token = 100 + i}, self.block);
  here.net->close(which, error(error_code::closed, "it does not answer"));
  BOOST_REQUIRE(here.wait([&] { return here.has_closed(which); }));
  BOOST_TEST(here.sent.size() == self.asked + 16);
}

BOOST_AUTO_TEST_CASE(a_node_that_takes_no_frames_loses_its_link) {
  server self;
  station& here = self.here;
  const other_node fetcher({"fetch", here.net->where().text(), here.net->blocks_at().text(), "65536"});
  BOOST_REQUIRE(here.wait([&] { return here.sent.size() > 8; }));
  fetcher.signal(SIGSTOP);
  const auto which = here.accepted.front();
  for (int i = 0; i < 3000; ++i) here.net->send(which, std::vector<std::byte>(64 << 10));
  BOOST_REQUIRE(here.wait([&] { return here.has_closed(which); }));
  BOOST_TEST(here.closed.front().second.message().find("takes no frames") != std::string::npos);
}

BOOST_AUTO_TEST_CASE(many_nodes_come_and_go_at_once) {
  server self;
  station& here = self.here;
  std::vector<std::unique_ptr<other_node>> all;
  for (int i = 0; i < 8; ++i)
    all.push_back(std::make_unique<other_node>(
        std::vector<std::string>{"fetch", here.net->where().text(), here.net->blocks_at().text(), "524288"}));
  BOOST_REQUIRE(here.wait([&] { return here.carrying.size() == all.size(); }));
  for (std::size_t i = 0; i < all.size(); i += 2) all[i].reset();
  const std::size_t sent = here.count(&station::sent);
  BOOST_REQUIRE(here.wait([&] { return here.closed.size() >= all.size() / 2 && here.sent.size() > sent + 40; }));
  BOOST_TEST(here.closed.size() == all.size() / 2);
}

BOOST_AUTO_TEST_CASE(a_network_may_stop_while_others_dial_it) {
  station dialler;
  const int rounds = std::getenv("CENOTE_TEST_FULL") == nullptr ? 8 : 500;
  for (int round = 0; round < rounds; ++round) {
    const auto gone = std::make_unique<station>();
    const peer::link_id first = dialler.net->dial(gone->net->where());
    BOOST_REQUIRE(dialler.wait([&] { return std::ranges::find(dialler.dialled, first) != dialler.dialled.end(); }));
    std::vector<peer::link_id> more;
    for (int i = 0; i < 20; ++i) more.push_back(dialler.net->dial(gone->net->where()));
    gone->net->stop();
    BOOST_REQUIRE(dialler.wait(
        [&] { return std::ranges::all_of(more, [&](peer::link_id each) { return dialler.has_closed(each); }); }));
  }
}

BOOST_AUTO_TEST_SUITE_END()
