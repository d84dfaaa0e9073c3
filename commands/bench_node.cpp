#include "commands/bench_node.hpp"

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "commands/common.hpp"
#include "core/runtime_paths.hpp"
#include "core/units.hpp"

namespace cenote::bench {

namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr auto start_limit = 20s;
constexpr auto stop_limit = 15s;
constexpr auto poll_pause = 20ms;

result<std::string> make_directory() {
  std::error_code failed;
  auto pattern = (std::filesystem::temp_directory_path(failed) / "cenote-bench-XXXXXX").native();
  if (failed) return fail(error_code::system, "no directory for temporary files: " + failed.message());
  if (::mkdtemp(pattern.data()) == nullptr) return fail_errno("mkdtemp", pattern);
  return pattern;
}

void remove_directory(const std::string& directory) {
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

}  // namespace

private_node::private_node(std::string directory, child_process process)
    : directory_(std::move(directory)), socket_(socket_in(directory_)), process_(std::move(process)) {}

result<std::unique_ptr<private_node>> private_node::start(std::uint64_t capacity,
                                                          const std::vector<std::string>& sets) {
  auto directory = make_directory();
  if (!directory) return std::unexpected(directory.error());
  child_process::setup how;
  how.program = "/proc/self/exe";
  how.command = {"cenote", "node",
                 "--set",  "node.runtime_dir=" + *directory,
                 "--set",  "node.socket=" + socket_in(*directory),
                 "--set",  "dram.capacity=" + format_bytes(capacity),
                 "--set",  "log.level=warn"};
  for (const auto& each : sets) {
    how.command.emplace_back("--set");
    how.command.push_back(each);
  }
  how.die_with_parent = true;
  how.discard_output = true;
  auto process = child_process::start(how);
  if (!process) {
    remove_directory(*directory);
    return std::unexpected(process.error());
  }
  std::unique_ptr<private_node> node(new private_node(std::move(*directory), std::move(*process)));
  if (auto up = node->wait_until_it_answers(); !up) return std::unexpected(up.error());
  return node;
}

result<void> private_node::wait_until_it_answers() {
  const auto until = steady_clock::now() + start_limit;
  while (true) {
    const auto status = ask(socket_, {{"command", "status"}}, 5s);
    if (status) return {};
    if (const auto end = process_.ended()) {
      return fail(error_code::not_running,
                  "the bench's own node ended with " + end->describe() + "; see its message above");
    }
    if (steady_clock::now() > until) return std::unexpected(status.error().in("the bench's own node does not answer"));
    std::this_thread::sleep_for(poll_pause);
  }
}

private_node::~private_node() {
  process_.signal(SIGTERM);
  const auto until = steady_clock::now() + stop_limit;
  while (!process_.ended() && steady_clock::now() < until) std::this_thread::sleep_for(poll_pause);
  remove_directory(directory_);
}

}  // namespace cenote::bench
