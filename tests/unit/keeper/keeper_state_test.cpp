#include "keeper/keeper_state.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

#include <boost/test/unit_test.hpp>
#include <string>

namespace {

using namespace cenote;

keeper_state some_state() {
  keeper_state state;
  state.epoch = 41;
  state.node_started = std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000));
  state.restarts = 6;
  state.ever_ready = true;
  state.listener.reset(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  state.lock.reset(::memfd_create("lock", MFD_CLOEXEC));
  state.socket_device = 1;
  state.socket_inode = 2;
  for (std::uint64_t id = 1; id <= 3; ++id) {
    local::registry_entry entry{local::entry_kind::slab, id, std::vector<std::byte>(id), {}};
    for (std::uint64_t n = 0; n < id; ++n) entry.fds.emplace_back(::memfd_create("slab", MFD_CLOEXEC));
    BOOST_REQUIRE(state.entries.put(std::move(entry)));
  }
  return state;
}

// What an exec does: the numbers stay open, nobody owns them.
void disown(keeper_state& state) {
  (void)state.listener.release();
  (void)state.lock.release();
  auto entries = std::move(state.entries);
  for (const auto& [key, entry] : entries.entries()) {
    for (const auto& fd : entry.fds) (void)const_cast<unique_fd&>(fd).release();
  }
}

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(the_keepers_state)

BOOST_AUTO_TEST_CASE(survives_an_exec) {
  auto before = some_state();
  const int slab = before.entries.entries().at({local::entry_kind::slab, 2}).fds[1].get();
  const auto fd = save_keeper_state(before);
  BOOST_REQUIRE(fd);
  keep_across_exec(before, true);
  BOOST_TEST(::fcntl(slab, F_GETFD) == 0);
  disown(before);
  const auto loaded = load_keeper_state(fd->get());
  BOOST_REQUIRE(loaded);
  BOOST_TEST(!loaded->cold);
  const auto& state = loaded->state;
  BOOST_TEST(state.epoch == 41U);
  BOOST_TEST((state.node_started == std::chrono::system_clock::time_point(std::chrono::seconds(1'700'000'000))));
  BOOST_TEST(state.restarts == 6U);
  BOOST_TEST(state.ever_ready);
  BOOST_TEST(state.socket_inode == 2U);
  BOOST_TEST(state.entries.size() == 3U);
  const auto& second = state.entries.entries().at({local::entry_kind::slab, 2});
  BOOST_TEST(second.meta.size() == 2U);
  BOOST_REQUIRE(second.fds.size() == 2U);
  BOOST_TEST(second.fds[1].get() == slab);
  BOOST_TEST(::fcntl(slab, F_GETFD) == FD_CLOEXEC);
}

BOOST_AUTO_TEST_CASE(of_an_unknown_version_keeps_the_socket_and_closes_all_else) {
  auto before = some_state();
  const int slab = before.entries.entries().at({local::entry_kind::slab, 1}).fds[0].get();
  const auto fd = save_keeper_state(before, keeper_state_version + 1);
  BOOST_REQUIRE(fd);
  disown(before);
  const auto loaded = load_keeper_state(fd->get());
  BOOST_REQUIRE(loaded);
  BOOST_TEST(loaded->cold);
  BOOST_TEST(loaded->state.entries.size() == 0U);
  BOOST_TEST(is_open(loaded->state.listener.get()));
  BOOST_TEST(loaded->state.epoch == 41U);
  BOOST_TEST(!is_open(slab));
}

BOOST_AUTO_TEST_CASE(is_refused_when_it_is_cut_short_or_something_else) {
  auto state = some_state();
  const auto fd = save_keeper_state(state);
  BOOST_REQUIRE(fd);
  BOOST_REQUIRE(::ftruncate(fd->get(), 60) == 0);
  BOOST_TEST(!load_keeper_state(fd->get()));
  const unique_fd other(::memfd_create("other", MFD_CLOEXEC));
  BOOST_REQUIRE(::ftruncate(other.get(), 4096) == 0);
  BOOST_TEST(!load_keeper_state(other.get()));
  BOOST_TEST(!load_keeper_state(-1));
}

BOOST_AUTO_TEST_SUITE_END()
