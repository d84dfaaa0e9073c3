// A keeper and a worker for tests, in one program. The worker does what the test tells it, over the node's socket.
//
//   fake_worker keeper DIR [--next PROGRAM] [--stop-limit MS] [--hang-timeout MS] [--start-limit MS] [--resume FD]
//                                                                             a real keeper over fake workers
//   fake_worker worker --keeper-fd N DIR …                                    started by it
//   fake_worker probe …                                                       what an upgrade asks first
//
// Commands (admin frames, the reply is a text): state | put ID TEXT | read ID | drop ID | put-many N | upgrade | mute |
// abort | exit STATUS | garbage | leave (close the link, live on) | deafen (shut the listening socket down) | late MS
// WHO (what its signs of life say) | freeze. Files in DIR: `before-ready` holds lines "exit STATUS" or "freeze", of
// which each worker takes the first away, `after-ready` and `at-end` likewise; `probe-fails` makes the probe fail.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "keeper/keeper.hpp"
#include "transport/local/keeper_link.hpp"
#include "transport/local/socket.hpp"

namespace {

using namespace std::chrono_literals;
using namespace cenote;

struct arguments {
  std::string dir;
  std::string next;
  std::chrono::milliseconds stop_limit{9500};
  std::chrono::milliseconds hang_timeout{0};
  std::chrono::milliseconds start_limit{60000};
  std::optional<int> resume;
  int keeper_fd = -1;
  std::vector<std::string> passed_on;
};

arguments parse(int argc, char** argv) {
  arguments out;
  for (int i = 2; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--resume") {
      out.resume = std::atoi(argv[++i]);
    } else if (word == "--keeper-fd") {
      out.keeper_fd = std::atoi(argv[++i]);
    } else if (word == "--next" || word == "--stop-limit" || word == "--hang-timeout" || word == "--start-limit") {
      const std::string value = argv[++i];
      const std::chrono::milliseconds limit(std::atoi(value.c_str()));
      if (word == "--next") out.next = value;
      if (word == "--stop-limit") out.stop_limit = limit;
      if (word == "--hang-timeout") out.hang_timeout = limit;
      if (word == "--start-limit") out.start_limit = limit;
      out.passed_on.insert(out.passed_on.end(), {word, value});
    } else {
      out.dir = word;
      out.passed_on.push_back(word);
    }
  }
  return out;
}

std::string contents_of(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

[[noreturn]] void freeze() {
  for (;;) ::pause();
}

// Takes the first line: a test need not guess when a worker has read the file. "exit 3" ends the process.
void obey_line_of(const std::string& path) {
  const auto text = contents_of(path);
  const auto order = text.substr(0, text.find('\n'));
  if (!order.empty()) std::ofstream(path) << text.substr(std::min(text.size(), order.size() + 1));
  if (order == "freeze") freeze();
  if (order.starts_with("exit ")) ::_exit(std::atoi(order.c_str() + 5));
}

unique_fd memfd_with(const std::string& text) {
  unique_fd fd(::memfd_create("fake", MFD_CLOEXEC));
  if (::write(fd.get(), text.data(), text.size()) < 0) std::abort();
  return fd;
}

std::string text_of(const unique_fd& fd) {
  std::array<char, 256> buffer{};
  const auto got = ::pread(fd.get(), buffer.data(), buffer.size(), 0);
  return {buffer.data(), got > 0 ? static_cast<std::size_t>(got) : 0};
}

std::string outcome(const result<void>& done) {
  return done ? "ok" : done.error().describe();
}

class worker {
 public:
  explicit worker(arguments given) : given_(std::move(given)), link_(unique_fd(given_.keeper_fd)) {}

  int run() {
    auto got = link_.receive_handover();
    if (!got) return 9;
    handover_ = std::move(*got);
    for (auto& entry : handover_.entries) entries_[entry.id] = std::move(entry);
    obey_line_of(given_.dir + "/before-ready");
    if (!link_.ready()) return 9;
    obey_line_of(given_.dir + "/after-ready");
    take_signals();
    while (!done_) step();
    return 0;
  }

 private:
  void take_signals() {
    sigset_t mask;
    ::sigemptyset(&mask);
    for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR2}) ::sigaddset(&mask, number);
    signals_.reset(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  }

  void step() {
    std::array<pollfd, 4> items{pollfd{signals_.get(), POLLIN, 0}, pollfd{handover_.listener.get(), POLLIN, 0},
                                pollfd{client_ ? client_.get() : -1, POLLIN, 0}, pollfd{left_ ? -1 : link_.fd(), 0, 0}};
    const bool beats = given_.hang_timeout > 0ms;
    ::poll(items.data(), items.size(), beats ? static_cast<int>(local::beat_of(given_.hang_timeout).count()) : -1);
    if (beats) link_.alive(silence_, silent_);
    if (items[0].revents != 0) read_signal();
    if (items[1].revents != 0) {
      if (auto next = local::accept_one(handover_.listener.get()); next && *next) client_ = std::move(**next);
    }
    if (items[2].revents != 0) serve();
    if (items[3].revents != 0) {
      if (link_.keeper_is_dead()) ::shutdown(handover_.listener.get(), SHUT_RDWR);
      done_ = true;
    }
  }

  void read_signal() {
    signalfd_siginfo info{};
    if (::read(signals_.get(), &info, sizeof info) != sizeof info) return;
    if (info.ssi_signo == SIGHUP) {
      ++reloads_;
      if (auto renewed = link_.renewed_listener(); renewed && *renewed) handover_.listener = std::move(**renewed);
    }
    if (info.ssi_signo == SIGTERM) obey_line_of(given_.dir + "/at-end");
    if (info.ssi_signo == SIGTERM && !mute_) done_ = true;
    if (info.ssi_signo == SIGUSR2) done_ = true;
  }

  void serve() {
    auto asked = local::try_receive_frame(client_.get());
    if (!asked) {
      client_.reset();
      return;
    }
    if (!*asked) return;
    const auto header = local::reply_to((*asked)->header, local::frame_type::admin_reply);
    const auto text = local::receive_text(client_.get(), std::move(**asked), local::deadline::max());
    const auto reply = text ? act(*text) : text.error().describe();
    [[maybe_unused]] const auto sent =
        local::send_text(client_.get(), header, reply, std::chrono::steady_clock::now() + 60s);
  }

  std::string act(const std::string& line) {
    std::istringstream in(line);
    std::string verb;
    std::uint64_t number = 0;
    std::string text;
    in >> verb >> number >> text;
    if (verb == "state") return state();
    if (verb == "put") return put(number, text);
    if (verb == "read") return entries_.contains(number) ? text_of(entries_[number].fds.at(0)) : "none";
    if (verb == "drop") return outcome(link_.drop(local::entry_kind::slab, number));
    if (verb == "put-many") {
      for (std::uint64_t id = 0; id < number; ++id) put(1000 + id, "many");
      return "ok";
    }
    if (verb == "upgrade") return outcome(link_.ask_upgrade());
    if (verb == "mute") mute_ = true;
    if (verb == "abort") std::abort();
    if (verb == "freeze") freeze();
    if (verb == "late") {
      silence_ = std::chrono::milliseconds(number);
      silent_ = text;
    }
    if (verb == "exit") {
      link_.fatal("told to exit");
      ::_exit(static_cast<int>(number));
    }
    if (verb == "garbage") ::send(link_.fd(), "garbage", 7, MSG_NOSIGNAL);
    if (verb == "deafen") ::shutdown(handover_.listener.get(), SHUT_RDWR);
    if (verb == "leave") {
      left_ = true;
      ::shutdown(link_.fd(), SHUT_RDWR);
    }
    return "ok";
  }

  std::string state() const {
    return fmt::format("epoch={} pid={} entries={} restarts={} reloads={}", handover_.epoch, ::getpid(),
                       handover_.entries.size(), handover_.restarts, reloads_);
  }

  std::string put(std::uint64_t id, const std::string& text) {
    local::registry_entry entry{local::entry_kind::slab, id, std::vector<std::byte>(3), {}};
    entry.fds.push_back(memfd_with(text));
    auto done = link_.put(entry);
    entries_[id] = std::move(entry);
    return outcome(done);
  }

  arguments given_;
  local::keeper_link link_;
  local::handover handover_;
  std::map<std::uint64_t, local::registry_entry> entries_;
  unique_fd signals_;
  unique_fd client_;
  std::chrono::milliseconds silence_{0};
  std::string silent_;
  int reloads_ = 0;
  bool mute_ = false;
  bool left_ = false;
  bool done_ = false;
};

int run_keeper(const arguments& given) {
  const auto self = std::filesystem::read_symlink("/proc/self/exe").native();
  keeper_options options;
  options.socket = given.dir + "/cenote.sock";
  options.runtime_dir = given.dir;
  options.node_command = {given.next.empty() ? self : given.next, "keeper"};
  options.probe_command = {self, "probe"};
  options.arguments = given.passed_on;
  options.resume_fd = given.resume;
  options.stop_limit = given.stop_limit;
  options.hang_timeout = given.hang_timeout;
  options.start_limit = given.start_limit;
  return to_int(keeper(std::move(options)).run());
}

}  // namespace

int main(int argc, char** argv) {
  const std::string role = argc > 1 ? argv[1] : "";
  auto given = parse(argc, argv);
  if (role == "keeper") return run_keeper(given);
  if (role == "worker") return worker(std::move(given)).run();
  if (role == "probe") return std::filesystem::exists(given.dir + "/probe-fails") ? 1 : 0;
  return 2;
}
