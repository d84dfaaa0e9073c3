#include "commands/private_node.hpp"

#include <fcntl.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <thread>
#include <utility>

#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/programs.hpp"
#include "core/runtime_paths.hpp"
#include "core/unique_fd.hpp"
#include "core/units.hpp"

namespace cenote {

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;
namespace fs = std::filesystem;

constexpr auto start_limit = 20s;
constexpr auto stop_limit = 15s;
constexpr auto poll_pause = 20ms;
constexpr std::size_t tail_lines = 5;

result<std::string> make_directory(fs::path where, const std::string& purpose) {
  std::error_code failed;
  if (where.empty()) where = fs::temp_directory_path(failed);
  if (failed) return fail(error_code::system, "no directory for temporary files: " + failed.message());
  auto pattern = (where / ("cenote-" + purpose + "-XXXXXX")).native();
  if (::mkdtemp(pattern.data()) == nullptr) return fail_errno("mkdtemp", pattern);
  return pattern;
}

/// Removes what was made when the start fails half way.
class made_directories {
 public:
  made_directories() = default;
  made_directories(const made_directories&) = delete;
  made_directories& operator=(const made_directories&) = delete;
  ~made_directories() {
    std::error_code ignored;
    for (const auto& each : all_) fs::remove_all(each, ignored);
  }
  result<std::string> make(const std::string& where, const std::string& purpose) {
    auto made = make_directory(where, purpose);
    if (made) all_.push_back(*made);
    return made;
  }
  [[nodiscard]] std::vector<std::string> keep() { return std::exchange(all_, {}); }

 private:
  std::vector<std::string> all_;
};

std::string log_in(const std::string& directory) {
  return directory + "/node.log";
}

}  // namespace

private_node::private_node(std::vector<std::string> directories, std::vector<std::string> command, bool own_log)
    : directories_(std::move(directories)),
      socket_(socket_in(directories_.front())),
      command_(std::move(command)),
      own_log_(own_log) {}

result<std::unique_ptr<private_node>> private_node::start(const setup& setup) {
  made_directories made;
  const auto home = made.make({}, setup.purpose);
  if (!home) return std::unexpected(home.error());
  std::vector<std::string> sets{"node.runtime_dir=" + *home, "node.socket=" + socket_in(*home),
                                "dram.capacity=" + format_bytes(setup.dram), "log.level=warn", "node.flush_timeout=0s"};
  if (setup.nvme > 0) {
    auto store = setup.nvme_at.empty() ? result<std::string>(*home + "/nvme") : made.make(setup.nvme_at, setup.purpose);
    if (!store) return std::unexpected(store.error());
    sets.push_back("nvme.paths=[" + *store + "]");
    sets.push_back("nvme.capacity=" + format_bytes(setup.nvme));
  }
  if (!setup.remote.empty()) {
    std::string all;
    for (const std::string& each : setup.remote) all += (all.empty() ? "\"" : ",\"") + each + "\"";
    sets.push_back("remote.backends=[" + all + "]");
    sets.push_back("remote.state_dir=" + *home + "/remote");
  }
  sets.insert(sets.end(), setup.sets.begin(), setup.sets.end());
  std::vector<std::string> command{"cenote", "node", "--config", ""};
  for (auto& each : sets) {
    command.emplace_back("--set");
    command.push_back(std::move(each));
  }
  std::unique_ptr<private_node> node(new private_node(made.keep(), std::move(command), setup.own_log));
  if (auto launched = node->launch(); !launched) return std::unexpected(launched.error());
  if (setup.only_launch) return node;
  if (auto up = node->wait_until_it_answers(); !up) return std::unexpected(up.error());
  return node;
}

result<void> private_node::launch() {
  child_process::setup child;
  child.program = node_program();
  child.command = command_;
  unique_fd log;
  if (own_log_) {
    const std::string path = log_in(directories_.front());
    log.reset(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!log) return fail_errno("open", path);
  }
  child.errors = log.get();
  child.own_group = own_log_;
  child.die_with_parent = true;
  child.discard_output = true;
  auto process = child_process::start(child);
  if (!process) return std::unexpected(process.error());
  process_.emplace(std::move(*process));
  return {};
}

void private_node::kill(pid_t worker) {
  process_->signal(SIGSTOP);
  if (worker > 0) ::kill(worker, SIGKILL);
  process_->signal(SIGKILL);
}

result<void> private_node::start_again() {
  const auto until = steady_clock::now() + stop_limit;
  while (!process_->ended() && steady_clock::now() < until) std::this_thread::sleep_for(1ms);
  return launch();
}

result<void> private_node::wait_until_it_answers() {
  const auto until = steady_clock::now() + start_limit;
  while (true) {
    const auto status = ask(socket_, {{"command", "status"}}, 5s);
    if (status) return {};
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    if (const auto end = process_->ended()) {
      const std::string said = log_tail();
      return fail(error_code::not_running, "a node of this command's own ended with " + end->describe() +
                                               (said.empty() ? "; see its message above" : "; it said: " + said));
    }
    if (steady_clock::now() > until) {
      return std::unexpected(status.error().in("a node of this command's own does not answer"));
    }
    std::this_thread::sleep_for(poll_pause);
  }
}

std::string private_node::log_tail() const {
  std::ifstream log(log_in(directories_.front()));
  std::deque<std::string> last;
  for (std::string line; std::getline(log, line);) {
    last.push_back(std::move(line));
    if (last.size() > tail_lines) last.pop_front();
  }
  std::string text;
  for (const auto& each : last) text += (text.empty() ? "" : "\n") + each;
  return text;
}

private_node::~private_node() {
  if (process_) {
    process_->signal(SIGTERM);
    const auto until = steady_clock::now() + stop_limit;
    while (!process_->ended() && steady_clock::now() < until) std::this_thread::sleep_for(poll_pause);
  }
  std::error_code ignored;
  for (const auto& each : directories_) fs::remove_all(each, ignored);
}

}  // namespace cenote
