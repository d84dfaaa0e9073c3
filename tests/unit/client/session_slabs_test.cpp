// Slabs that a session with a device maps and registers before a call needs them.
#include <boost/test/unit_test.hpp>

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "client/slab_watch.hpp"
#include "client/use_rate.hpp"
#include "memory/segment.hpp"
#include "tests/unit/client/recording_device.hpp"
#include "tests/unit/client/session_fixture.hpp"
#include "transport/local/attach.hpp"
#include "transport/local/socket.hpp"

namespace session_slabs_test {

using namespace cenote;
using namespace std::chrono_literals;
using testing::batch_of;
using testing::code_of;
using testing::content;
using testing::keys_of;
using testing::must;
using testing::part_bytes;
using testing::run_of;

namespace {

constexpr std::uint32_t blocks = 16;
constexpr std::uint64_t slab_bytes = blocks * part_bytes + memory::page_bytes;

void set_state(const memory::version_table& versions, std::uint32_t index, memory::slab_state state) {
  must(versions.make_room(index, 5 + index * blocks, blocks));
  memory::slab_entry& entry = *versions.slab(index);
  entry.first_version = 5 + index * blocks;
  entry.count = blocks;
  entry.stride = part_bytes;
  entry.state.store(static_cast<std::uint32_t>(state), std::memory_order_release);
}

/// A node's end of a session's socket: answers for slabs, on a thread of its own.
class slab_server {
 public:
  slab_server() {
    int pair[2] = {-1, -1};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0) throw std::runtime_error("socketpair");
    client_end_ = unique_fd(pair[0]);
    socket_ = unique_fd(pair[1]);
    thread_ = std::thread([this] { serve(); });
  }
  slab_server(const slab_server&) = delete;
  slab_server& operator=(const slab_server&) = delete;
  ~slab_server() {
    stop_.store(true);
    thread_.join();
  }

  [[nodiscard]] unique_fd take_client_end() { return std::move(client_end_); }
  /// The number of the slab stands in its first bytes.
  void add(std::uint32_t index) {
    auto made = must(memory::segment::create("slab", slab_bytes));
    auto& trailer = *reinterpret_cast<memory::segment_header*>(made.data() + slab_bytes - memory::page_bytes);
    memory::write_header(trailer, memory::segment_kind::slab, slab_bytes);
    *reinterpret_cast<std::uint32_t*>(made.data()) = index;
    const std::lock_guard lock(mutex_);
    slabs_.insert_or_assign(index, std::move(made));
  }
  /// Queries are read and not answered.
  void be_silent(bool silent) noexcept { silent_.store(silent); }
  /// Numbers of each query so far.
  [[nodiscard]] std::vector<std::vector<std::uint32_t>> queries() const {
    const std::lock_guard lock(mutex_);
    return queries_;
  }

 private:
  void serve() {
    while (!stop_.load()) {
      pollfd entry{socket_.get(), POLLIN, 0};
      if (::poll(&entry, 1, 10) <= 0) continue;
      const auto got = local::try_receive_frame(socket_.get());
      if (!got) return;
      if (*got) answer(**got);
    }
  }
  void answer(const local::frame& query) {
    const auto until = std::chrono::steady_clock::now() + 60s;
    std::vector<local::slab_descriptor> found;
    std::vector<int> numbers;
    const std::lock_guard lock(mutex_);
    if (query.header.type != local::frame_type::slabs) {
      const auto header = local::reply_to(query.header, local::frame_type::done);
      return static_cast<void>(local::send_frame(socket_.get(), header, {}, {}, until));
    }
    queries_.push_back(must(local::decode_slab_query(query.payload)));
    if (silent_.load()) return;
    for (const std::uint32_t index : queries_.back()) {
      const auto slab = slabs_.find(index);
      if (slab == slabs_.end()) continue;
      found.push_back({index, slab_bytes});
      numbers.push_back(slab->second.fd().get());
    }
    static_cast<void>(local::send_frame(socket_.get(), local::reply_to(query.header, local::frame_type::slabs_reply),
                                        local::encode_slabs(found), numbers, until));
  }

  unique_fd client_end_, socket_;
  mutable std::mutex mutex_;
  std::map<std::uint32_t, memory::segment> slabs_;
  std::vector<std::vector<std::uint32_t>> queries_;
  std::atomic<bool> silent_{false}, stop_{false};
  std::thread thread_;
};

struct server_part {
  slab_server server;
};

/// An instance with `count` slabs, numbered from 1.
struct fixture : server_part, testing::session_fixture {
  explicit fixture(std::uint32_t count)
      : session_fixture(blocks, 16, 1, 60s, "/nonexistent/cenote.sock", nullptr, nullptr, 100ms,
                        server.take_client_end()),
        user(std::make_shared<testing::recording_device>()) {
    for (std::uint32_t index = 1; index <= count; ++index) add(index);
  }
  fixture(const fixture&) = delete;
  fixture& operator=(const fixture&) = delete;
  ~fixture() {
    user->let_go();
    session.reset();
  }

  void add(std::uint32_t index) {
    server.add(index);
    set_state(owner.versions(), index, memory::slab_state::live);
  }
  [[nodiscard]] std::uint64_t registered() const { return must(session->stats()).slabs_registered; }
  /// Numbers of the slabs whose first piece was registered, in that order.
  [[nodiscard]] std::vector<std::uint32_t> order() const {
    std::vector<std::uint32_t> numbers;
    for (const auto& piece : user->pieces()) numbers.push_back(*reinterpret_cast<const std::uint32_t*>(piece.data()));
    return numbers;
  }
  result<void> put(std::uint64_t first, std::size_t count) {
    const auto keys = keys_of(first, count);
    auto bytes = content(first, count);
    return session->put(batch_of(keys), 0, std::nullopt, run_of(bytes, count)).status;
  }

  std::shared_ptr<testing::recording_device> user;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(slabs_ahead_of_need)

BOOST_AUTO_TEST_CASE(a_session_that_uses_a_device_has_every_slab_registered_without_a_call_the_latest_first) {
  constexpr std::uint32_t count = 20;
  fixture test(count);
  must(test.session->use_device(test.user));
  BOOST_TEST(test.comes([&] { return test.registered() == count; }));
  std::vector<std::uint32_t> expected;
  for (std::uint32_t index = count; index > 0; --index) expected.push_back(index);
  BOOST_TEST(test.order() == expected, boost::test_tools::per_element());
  const auto stats = must(test.session->stats());
  BOOST_TEST(stats.slabs_mapped == count);
  BOOST_TEST(stats.bytes_registered == count * blocks * part_bytes);
  BOOST_TEST(stats.registration_ns > 0U);
  const auto queries = test.server.queries();  // one for each batch
  BOOST_REQUIRE(queries.size() == 3U);
  BOOST_TEST(queries[0].size() == 8U);
  BOOST_TEST(queries[2].size() == 4U);
  test.session.reset();
  BOOST_TEST(test.user->registered_bytes() == 0U);
}

BOOST_AUTO_TEST_CASE(slabs_that_the_node_makes_for_others_are_registered_and_retired_ones_given_back_without_a_call) {
  fixture test(2);
  must(test.session->use_device(test.user));
  BOOST_TEST(test.comes([&] { return test.registered() == 2U; }));
  test.add(3);
  test.add(7);  // numbers of slabs that could not be made are left out
  BOOST_TEST(test.comes([&] { return test.registered() == 4U; }));
  set_state(test.owner.versions(), 2, memory::slab_state::retired);
  BOOST_TEST(test.comes([&] { return test.registered() == 3U; }));
  BOOST_TEST(test.comes([&] { return test.user->registered_bytes() == 3 * blocks * part_bytes; }));
  BOOST_TEST(must(test.session->stats()).slabs_mapped == 3U);
}

BOOST_AUTO_TEST_CASE(a_slab_that_the_node_makes_beside_stores_is_registered) {
  fixture test(1);
  must(test.session->use_device(test.user));
  must(test.put(0, 4));
  test.add(2);
  must(test.put(10, 4));
  BOOST_TEST(test.comes([&] { return test.registered() == 2U; }));
}

BOOST_AUTO_TEST_CASE(a_session_without_a_device_maps_what_it_needs_and_one_slab_more) {
  fixture test(6);
  must(test.put(0, 1));
  BOOST_TEST(test.comes([&] { return must(test.session->stats()).slabs_mapped == 2U; }));
  const auto queries = test.server.queries();
  BOOST_REQUIRE(queries.size() == 2U);
  BOOST_TEST((queries[0] == std::vector<std::uint32_t>{1}));
  BOOST_TEST((queries[1] == std::vector<std::uint32_t>{2}));
}

BOOST_AUTO_TEST_CASE(a_silent_node_keeps_no_lookup_waiting_and_is_asked_again) {
  fixture test(3);
  must(test.put(0, 4));
  test.server.be_silent(true);
  const std::size_t before = test.server.queries().size();
  must(test.session->use_device(test.user));
  BOOST_TEST(test.comes([&] { return test.server.queries().size() > before; }));
  must(test.put(10, 4));
  BOOST_TEST(must(test.session->match_prefix(batch_of(keys_of(10, 4)), 0)).resident == 4U);
  test.server.be_silent(false);
  BOOST_TEST(test.comes([&] { return test.registered() == 3U; }));
}

BOOST_AUTO_TEST_CASE(a_slab_that_the_node_does_not_know_keeps_no_other_from_being_registered) {
  fixture test(10);
  set_state(test.owner.versions(), 11, memory::slab_state::live);  // of which the node has nothing
  must(test.session->use_device(test.user));
  BOOST_TEST(test.comes([&] { return test.registered() == 10U; }));
  test.add(12);
  BOOST_TEST(test.comes([&] { return test.registered() == 11U; }));
}

BOOST_AUTO_TEST_CASE(a_device_that_refuses_a_slab_harms_no_other_and_no_call) {
  fixture test(3);
  test.user->refuse(2);
  must(test.session->use_device(test.user));
  BOOST_TEST(test.comes([&] { return test.registered() == 2U; }));
  BOOST_TEST(must(test.session->stats()).slabs_refused == 1U);
  must(test.put(0, 8));
  std::vector<std::byte> back(8 * part_bytes);
  BOOST_TEST(must(test.session->get_into(batch_of(keys_of(0, 8)), 0, std::nullopt, run_of(back, 8))) == 8U);
  BOOST_TEST((back == content(0, 8)));
}

BOOST_AUTO_TEST_CASE(calls_and_a_close_do_not_wait_for_a_registration_that_is_under_way) {
  fixture test(4);
  test.user->hold_registration();
  must(test.session->use_device(test.user));
  test.user->await_held();
  BOOST_TEST(test.registered() == 0U);
  must(test.put(0, 8));
  must(test.session->close());
  test.user->let_go();
  test.session.reset();
  BOOST_TEST(test.user->registered_bytes() == 0U);
}

#ifndef CENOTE_TSAN  // a fork of a process with threads is more than the thread sanitizer bears
BOOST_AUTO_TEST_CASE(a_child_that_is_forked_beside_a_registration_leaves_it_to_the_parent) {
  fixture test(4);
  test.user->hold_registration();
  must(test.session->use_device(test.user));
  test.user->await_held();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool told = code_of(test.session->stats()) == error_code::forked &&
                      code_of(test.session->use_device(test.user)) == error_code::forked;
    test.session.reset();
    ::_exit(told ? 0 : 1);
  }
  int status = 0;
  BOOST_REQUIRE(::waitpid(child, &status, 0) == child);
  BOOST_TEST(WEXITSTATUS(status) == 0);
  test.user->let_go();
  BOOST_TEST(test.comes([&] { return test.registered() == 4U; }));
}
#endif

BOOST_AUTO_TEST_CASE(live_slabs_are_found_from_the_latest_on_once_and_again_after_a_second) {
  const testing::local_owner owner(blocks, part_bytes, 1);
  const memory::version_table& versions = owner.versions();
  set_state(versions, 1, memory::slab_state::retired);
  for (const std::uint32_t index : {2U, 3U, 500U}) set_state(versions, index, memory::slab_state::live);
  const client::slab_map slabs;
  client::slab_watch watch(versions, slabs);
  const std::chrono::steady_clock::time_point start{};
  using numbers = std::vector<std::uint32_t>;
  BOOST_TEST((watch.unmapped(2, start) == numbers{500, 3}));
  BOOST_TEST((watch.unmapped(2, start) == numbers{2}));
  BOOST_TEST(watch.unmapped(2, start + 1ms).empty());
  set_state(versions, 501, memory::slab_state::live);
  BOOST_TEST((watch.unmapped(2, start + 2ms) == numbers{501}));
  set_state(versions, 500, memory::slab_state::retired);
  BOOST_TEST((watch.unmapped(9, start + 2s) == numbers{501, 3, 2}));
}

BOOST_AUTO_TEST_CASE(the_rate_of_use_is_of_the_last_half_second_at_most) {
  client::use_rate rate;
  constexpr std::uint64_t window = client::use_rate::window;
  rate.add(3, 10 * window);
  rate.add(4, 10 * window + 1);
  BOOST_TEST(rate.recent(10 * window + 1) == 7U);
  rate.add(5, 11 * window);
  BOOST_TEST(rate.recent(11 * window) == 12U);
  BOOST_TEST(rate.recent(12 * window) == 5U);
  BOOST_TEST(rate.recent(13 * window) == 0U);
  rate.add(1, 20 * window);
  BOOST_TEST(rate.recent(20 * window) == 1U);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace session_slabs_test
