// A real keeper process over fake workers: see tests/support/fake_worker.cpp for what they understand.
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <boost/test/unit_test.hpp>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "keeper/child_process.hpp"
#include "keeper/exit_code.hpp"
#include "transport/local/socket.hpp"

namespace {

using namespace std::chrono_literals;
using namespace cenote;
using clock_type = std::chrono::steady_clock;

constexpr auto patience = 60s;  // for what comes on any machine

std::string fake_program() {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / "fake_worker").native();
}

class fake_node {
 public:
  explicit fake_node(std::vector<std::string> options = {}) : options_(std::move(options)) {
    char name[] = "/tmp/cenote-keeper-test-XXXXXX";
    dir_ = ::mkdtemp(name);
  }
  ~fake_node() {
    keeper_.reset();
    std::filesystem::remove_all(dir_);
  }
  fake_node(const fake_node&) = delete;
  fake_node& operator=(const fake_node&) = delete;

  void start() {
    std::vector<std::string> command{fake_program(), "keeper", dir_};
    command.insert(command.end(), options_.begin(), options_.end());
    auto started = child_process::start({.command = command});
    BOOST_REQUIRE(started);
    keeper_.emplace(std::move(*started));
  }

  void file(const std::string& name, const std::string& text) const { std::ofstream(dir_ + "/" + name) << text; }

  // Retries until the worker of the moment answers.
  std::string ask(const std::string& text, std::chrono::milliseconds limit = patience) {
    const auto until = clock_type::now() + limit;
    while (clock_type::now() < until) {
      if (auto reply = try_ask(text, until)) return *reply;
      std::this_thread::sleep_for(2ms);
    }
    return "no answer";
  }

  // Sends an order that the worker does not survive.
  void order(const std::string& text) const {
    const auto until = clock_type::now() + patience;
    auto fd = local::connect_to(socket(), until);
    BOOST_REQUIRE(fd);
    local::frame_header header;
    header.type = local::frame_type::admin;
    BOOST_REQUIRE(local::send_text(fd->get(), header, text, until));
    (void)local::receive_frame(fd->get(), until);
  }

  std::optional<process_end> wait_end(std::chrono::milliseconds limit = patience) {
    (void)local::detail::wait_for(keeper_->pidfd(), POLLIN, clock_type::now() + limit);
    return keeper_->ended();
  }

  [[nodiscard]] bool runs() { return !keeper_->ended(); }
  [[nodiscard]] pid_t pid() const { return keeper_->pid(); }
  void signal(int number) { keeper_->signal(number); }
  [[nodiscard]] std::string socket() const { return dir_ + "/cenote.sock"; }
  [[nodiscard]] const std::string& dir() const { return dir_; }

 private:
  std::optional<std::string> try_ask(const std::string& text, local::deadline until) const {
    auto fd = local::connect_to(socket(), until);
    if (!fd) return std::nullopt;
    local::frame_header header;
    header.type = local::frame_type::admin;
    if (!local::send_text(fd->get(), header, text, until)) return std::nullopt;
    auto first = local::receive_frame(fd->get(), until);
    if (!first) return std::nullopt;
    auto reply = local::receive_text(fd->get(), std::move(*first), until);
    return reply ? std::optional(*reply) : std::nullopt;
  }

  std::vector<std::string> options_;
  std::string dir_;
  std::optional<child_process> keeper_;
};

std::uint64_t number_in(const std::string& state, const std::string& name) {
  const auto at = state.find(name + "=");
  return at == std::string::npos ? 0 : std::stoull(state.substr(at + name.size() + 1));
}

// Waits until the worker of the moment says that number, or more.
std::string state_with(fake_node& node, const std::string& name, std::uint64_t least) {
  for (int i = 0; i < 5000; ++i) {
    auto state = node.ask("state");
    if (number_in(state, name) >= least) return state;
    std::this_thread::sleep_for(1ms);
  }
  return "never";
}

std::string state_at(fake_node& node, std::uint64_t epoch) {
  return state_with(node, "epoch", epoch);
}

pid_t worker_of(const std::string& state) {
  return static_cast<pid_t>(number_in(state, "pid"));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(the_keeper)

BOOST_AUTO_TEST_CASE(hands_an_empty_registry_and_the_listening_socket_to_its_first_worker) {
  fake_node node;
  node.start();
  const auto state = node.ask("state");
  BOOST_TEST(number_in(state, "epoch") == 1U);
  BOOST_TEST(number_in(state, "entries") == 0U);
}

BOOST_AUTO_TEST_CASE(restarts_a_killed_worker_and_gives_it_what_was_put) {
  fake_node node;
  node.start();
  BOOST_TEST(node.ask("put 7 hello") == "ok");
  for (std::uint64_t round = 1; round <= 20; ++round) {
    const auto state = state_at(node, round);
    BOOST_REQUIRE(::kill(worker_of(state), SIGKILL) == 0);
    BOOST_TEST(number_in(state_at(node, round + 1), "entries") == 1U);
    BOOST_TEST(node.ask("read 7") == "hello");
  }
}

BOOST_AUTO_TEST_CASE(forgets_what_was_dropped) {
  fake_node node;
  node.start();
  BOOST_TEST(node.ask("put 1 a") == "ok");
  BOOST_TEST(node.ask("put 2 b") == "ok");
  BOOST_TEST(node.ask("drop 1") == "ok");
  node.order("abort");
  BOOST_TEST(number_in(state_at(node, 2), "entries") == 1U);
  BOOST_TEST(node.ask("read 2") == "b");
}

BOOST_AUTO_TEST_CASE(hands_over_more_entries_than_a_socket_queue_holds) {
  fake_node node;
  node.start();
  BOOST_TEST(node.ask("put-many 3000", 60s) == "ok");
  node.order("abort");
  BOOST_TEST(number_in(state_at(node, 2), "entries") == 3000U);
}

BOOST_AUTO_TEST_CASE(makes_the_file_of_its_socket_again_for_the_worker_that_is_there) {
  fake_node node;
  node.start();
  const auto worker = worker_of(node.ask("state"));
  for (int round = 1; round <= 2; ++round) {
    BOOST_REQUIRE(std::filesystem::remove(node.socket()));
    node.signal(SIGHUP);
    BOOST_TEST(worker_of(state_with(node, "reloads", static_cast<std::uint64_t>(round))) == worker);
  }
  node.signal(SIGTERM);
  BOOST_REQUIRE(node.wait_end());
  BOOST_TEST(!std::filesystem::exists(node.socket()));
}

BOOST_AUTO_TEST_CASE(makes_the_file_of_its_socket_again_for_a_new_worker) {
  fake_node node;
  node.start();
  const auto worker = worker_of(node.ask("state"));
  BOOST_REQUIRE(std::filesystem::remove(node.socket()));
  BOOST_REQUIRE(::kill(worker, SIGKILL) == 0);
  BOOST_TEST(number_in(state_at(node, 2), "epoch") == 2U);
}

BOOST_AUTO_TEST_CASE(backs_off_from_workers_that_die_before_they_are_ready_and_gives_up) {
  fake_node node;
  node.file("before-ready", "exit 1\nexit 1\nexit 1\nexit 1\n");
  const auto before = clock_type::now();
  node.start();
  // 50 + 100 + 200 + 400 ms lie before the fifth try.
  const auto state = node.ask("state");
  BOOST_TEST(number_in(state, "epoch") == 5U);
  BOOST_TEST(number_in(state, "restarts") == 4U);
  BOOST_TEST(std::chrono::duration<double>(clock_type::now() - before).count() > 0.7);
}

BOOST_AUTO_TEST_CASE(gives_up_at_once_on_a_configuration_that_can_never_work) {
  fake_node node;
  node.file("before-ready", "exit 2");
  node.start();
  const auto end = node.wait_end();
  BOOST_REQUIRE(end);
  BOOST_TEST(end->value == to_int(exit_code::usage));
  BOOST_TEST(!std::filesystem::exists(node.socket()));
}

BOOST_AUTO_TEST_CASE(backs_off_from_a_worker_that_fails_right_after_ready_but_never_gives_up) {
  fake_node node;
  node.file("after-ready", "exit 1\nexit 1\nexit 1\nexit 1\n");
  const auto before = clock_type::now();
  node.start();
  BOOST_TEST(number_in(node.ask("state"), "epoch") == 5U);
  BOOST_TEST(std::chrono::duration<double>(clock_type::now() - before).count() > 0.7);
}

BOOST_AUTO_TEST_CASE(survives_garbage_from_its_worker_and_replaces_it) {
  fake_node node;
  node.start();
  BOOST_TEST(node.ask("put 1 kept") == "ok");
  node.order("garbage");
  BOOST_TEST(number_in(state_at(node, 2), "entries") == 1U);
  BOOST_TEST(node.ask("read 1") == "kept");
}

BOOST_AUTO_TEST_CASE(replaces_a_worker_that_closed_its_link_and_lives_on) {
  fake_node node;
  node.start();
  (void)node.ask("state");
  node.order("leave");
  BOOST_TEST(number_in(state_at(node, 2), "epoch") == 2U);
}

BOOST_AUTO_TEST_CASE(replaces_a_worker_that_says_nothing_any_more) {
  fake_node node({"--hang-timeout", "300"});
  node.start();
  BOOST_TEST(node.ask("put 1 kept") == "ok");
  node.order("freeze");
  BOOST_TEST(number_in(state_at(node, 2), "entries") == 1U);
  BOOST_TEST(node.ask("read 1") == "kept");
}

BOOST_AUTO_TEST_CASE(replaces_a_worker_that_says_a_part_of_it_is_silent) {
  fake_node node({"--hang-timeout", "300"});
  node.start();
  BOOST_TEST(node.ask("late 300 tier") == "ok");
  BOOST_TEST(number_in(state_at(node, 2), "epoch") >= 2U);  // a busy machine may keep the next one from its beats, too
}

BOOST_AUTO_TEST_CASE(replaces_a_worker_that_is_never_ready) {
  fake_node node({"--hang-timeout", "100", "--start-limit", "400"});
  node.file("before-ready", "freeze");
  node.start();
  BOOST_TEST(number_in(state_at(node, 2), "restarts") >= 1U);
}

BOOST_AUTO_TEST_CASE(leaves_a_slow_worker_alone) {
  fake_node node({"--hang-timeout", "20000"});
  node.start();
  const auto worker = worker_of(node.ask("state"));
  BOOST_TEST(node.ask("late 10000 tier") == "ok");
  BOOST_REQUIRE(::kill(worker, SIGSTOP) == 0);
  std::this_thread::sleep_for(300ms);
  BOOST_REQUIRE(::kill(worker, SIGCONT) == 0);
  BOOST_TEST(node.ask("late 0 nobody") == "ok");
  BOOST_TEST(worker_of(node.ask("state")) == worker);
}

BOOST_AUTO_TEST_CASE(leaves_a_stopped_worker_alone_where_no_limit_is_set) {
  fake_node node;
  node.start();
  const auto worker = worker_of(node.ask("state"));
  BOOST_REQUIRE(::kill(worker, SIGSTOP) == 0);
  std::this_thread::sleep_for(500ms);
  BOOST_REQUIRE(::kill(worker, SIGCONT) == 0);
  BOOST_TEST(worker_of(node.ask("state")) == worker);
}

BOOST_AUTO_TEST_CASE(starts_although_a_stranger_holds_a_lock_file_that_everybody_could_open) {
  fake_node node;
  unique_fd lock(::open((node.dir() + "/cenote.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  BOOST_REQUIRE(::fchmod(lock.get(), 0644) == 0);
  BOOST_REQUIRE(::flock(lock.get(), LOCK_EX) == 0);
  node.start();
  BOOST_TEST(number_in(node.ask("state"), "epoch") == 1U);
  struct stat info {};
  BOOST_REQUIRE(::stat((node.dir() + "/cenote.lock").c_str(), &info) == 0);
  BOOST_TEST((info.st_mode & 0777) == 0600U);
}

BOOST_AUTO_TEST_CASE(says_so_when_its_worker_did_not_end_in_order) {
  fake_node node;
  node.start();
  (void)node.ask("state");
  node.file("at-end", "exit 1");
  node.signal(SIGTERM);
  const auto end = node.wait_end();
  BOOST_REQUIRE(end);
  BOOST_TEST(end->value == to_int(exit_code::failed));
}

BOOST_AUTO_TEST_CASE(opens_the_socket_again_that_a_worker_shut_down) {
  fake_node node;
  node.start();
  BOOST_TEST(node.ask("put 1 kept") == "ok");
  const auto worker = worker_of(node.ask("state"));
  node.order("deafen");
  BOOST_REQUIRE(::kill(worker, SIGKILL) == 0);
  BOOST_TEST(number_in(state_at(node, 2), "entries") == 1U);
}

BOOST_AUTO_TEST_CASE(forwards_sighup) {
  fake_node node;
  node.start();
  (void)node.ask("state");
  node.signal(SIGHUP);
  BOOST_TEST(number_in(state_with(node, "reloads", 1), "reloads") == 1U);
}

BOOST_AUTO_TEST_CASE(ends_in_order_on_sigterm_and_removes_its_socket) {
  fake_node node;
  node.start();
  (void)node.ask("state");
  node.signal(SIGTERM);
  const auto end = node.wait_end();
  BOOST_REQUIRE(end);
  BOOST_TEST(!end->by_signal);
  BOOST_TEST(end->value == to_int(exit_code::orderly));
  BOOST_TEST(!std::filesystem::exists(node.socket()));
}

BOOST_AUTO_TEST_CASE(kills_a_worker_that_does_not_end_within_the_limit) {
  fake_node node({"--stop-limit", "300"});
  node.start();
  BOOST_TEST(node.ask("mute") == "ok");
  node.signal(SIGTERM);
  const auto end = node.wait_end();
  BOOST_REQUIRE(end);
  BOOST_TEST(end->value == to_int(exit_code::failed));
}

BOOST_AUTO_TEST_CASE(ends_on_a_second_sigterm_though_its_worker_does_not) {
  fake_node node({"--stop-limit", "3600000"});
  node.start();
  BOOST_TEST(node.ask("mute") == "ok");
  node.file("at-end", "heard\n");
  node.signal(SIGTERM);
  while (std::filesystem::file_size(node.dir() + "/at-end") != 0) std::this_thread::sleep_for(1ms);
  BOOST_TEST(node.runs());
  node.signal(SIGTERM);
  const auto end = node.wait_end();
  BOOST_REQUIRE(end);
  BOOST_TEST(end->value == to_int(exit_code::ended_at_once));
  BOOST_TEST(!std::filesystem::exists(node.socket()));
}

BOOST_AUTO_TEST_CASE(refuses_a_second_node_in_the_same_directory) {
  fake_node node;
  node.start();
  (void)node.ask("state");
  auto second = child_process::start({.command = {fake_program(), "keeper", node.dir()}});
  BOOST_REQUIRE(second);
  (void)local::detail::wait_for(second->pidfd(), POLLIN, clock_type::now() + patience);
  const auto end = second->ended();
  BOOST_REQUIRE(end);
  BOOST_TEST(end->value == to_int(exit_code::already_running));
  BOOST_TEST(number_in(node.ask("state"), "epoch") == 1U);
}

BOOST_AUTO_TEST_CASE(takes_over_from_a_killed_keeper_whose_worker_drains) {
  fake_node node;
  node.start();
  const auto first = worker_of(node.ask("state"));
  node.signal(SIGKILL);
  BOOST_REQUIRE(node.wait_end());
  BOOST_TEST(std::filesystem::exists(node.socket()));
  node.start();
  auto second = node.ask("state");
  // The old worker may answer once more before it hears of its keeper's death.
  for (int i = 0; i < 1000 && worker_of(second) == first; ++i) second = node.ask("state");
  BOOST_TEST(number_in(second, "epoch") == 1U);
  BOOST_TEST(worker_of(second) != first);
}

BOOST_AUTO_TEST_CASE(keeps_registry_socket_and_pid_over_an_upgrade) {
  fake_node node;
  node.start();
  BOOST_TEST(node.ask("put 7 hello") == "ok");
  BOOST_TEST(node.ask("put-many 500", 30s) == "ok");
  struct stat before {};
  BOOST_REQUIRE(::stat(node.socket().c_str(), &before) == 0);
  BOOST_TEST(node.ask("upgrade") == "ok");
  const auto state = state_at(node, 2);
  BOOST_TEST(number_in(state, "epoch") == 2U);
  BOOST_TEST(number_in(state, "entries") == 501U);
  BOOST_TEST(node.ask("read 7") == "hello");
  struct stat after {};
  BOOST_REQUIRE(::stat(node.socket().c_str(), &after) == 0);
  BOOST_TEST(before.st_ino == after.st_ino);
  BOOST_TEST(node.runs());
  node.signal(SIGTERM);
  const auto end = node.wait_end();
  BOOST_REQUIRE(end);
  BOOST_TEST(end->value == to_int(exit_code::orderly));
  BOOST_TEST(!std::filesystem::exists(node.socket()));
}

BOOST_AUTO_TEST_CASE(refuses_an_upgrade_to_a_missing_binary_and_serves_on) {
  fake_node node({"--next", "/nonexistent/cenote"});
  node.start();
  const auto reply = node.ask("upgrade");
  BOOST_TEST(reply.find("/nonexistent/cenote") != std::string::npos);
  BOOST_TEST(number_in(node.ask("state"), "epoch") == 1U);
}

BOOST_AUTO_TEST_CASE(refuses_an_upgrade_to_a_binary_that_does_not_take_the_configuration) {
  fake_node node;
  node.start();
  node.file("probe-fails", "");
  BOOST_TEST(node.ask("upgrade").find("unsupported") == 0U);
  BOOST_TEST(number_in(node.ask("state"), "epoch") == 1U);
}

BOOST_AUTO_TEST_CASE(goes_on_with_the_old_binary_when_the_new_one_cannot_be_executed) {
  const auto program = "/tmp/cenote-not-a-program-" + std::to_string(::getpid());  // several runs share a machine
  fake_node node({"--next", program});
  std::ofstream(program) << "\x7f"
                            "ELF";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  node.start();
  BOOST_TEST(node.ask("put 1 kept") == "ok");
  BOOST_TEST(node.ask("upgrade") == "ok");
  BOOST_TEST(number_in(state_at(node, 2), "entries") == 1U);
  BOOST_TEST(node.ask("read 1") == "kept");
  std::filesystem::remove(program);
}

BOOST_AUTO_TEST_CASE(tells_systemd_when_its_worker_is_ready) {
  fake_node node;
  const auto path = node.dir() + "/notify";
  unique_fd listener(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  BOOST_REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  ::setenv("NOTIFY_SOCKET", path.c_str(), 1);
  node.start();
  ::unsetenv("NOTIFY_SOCKET");
  BOOST_REQUIRE(local::detail::wait_for(listener.get(), POLLIN, clock_type::now() + patience));
  char text[512] = {};
  BOOST_REQUIRE(::recv(listener.get(), text, sizeof text - 1, 0) > 0);
  BOOST_TEST(std::string(text).find("READY=1") == 0U);
  BOOST_TEST(std::string(text).find("MAINPID=" + std::to_string(node.pid())) != std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
