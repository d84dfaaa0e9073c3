#include "services/indexer/text/tokenizer_process.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "config/logging.hpp"
#include "keeper/command_line.hpp"

namespace cenote::indexer {

namespace {

constexpr int end_limit_ms = 1'000;

result<std::vector<std::string>> command_of(const tokenizer_settings& settings, const std::string& socket) {
  auto command = command_words(settings.command);
  const std::string program = command.empty() ? "" : program_path(command.front());
  if (program.empty()) {
    return fail(error_code::invalid_config, "tokenizer.command: `" + settings.command +
                                                "` begins with no program; right would be \"cenote-tokenizer\", or "
                                                "\"/venv/bin/python -m cenote.tokenizer\"");
  }
  command.front() = program;
  const auto add = [&command](std::string name, std::string value) {
    command.push_back(std::move(name));
    command.push_back(std::move(value));
  };
  add("--socket", socket);
  for (const std::string& each : settings.models) add("--model", each);
  for (const std::string& each : settings.directories) add("--directory", each);
  if (settings.hub) command.emplace_back("--hub");
  add("--cache", std::to_string(settings.cache));
  add("--workers", std::to_string(settings.workers));
  return command;
}

}  // namespace

result<socket_folder> socket_folder::make() {
  std::array path = std::to_array("/tmp/cenote-tokenizer-XXXXXX");
  if (::mkdtemp(path.data()) == nullptr) return fail_errno("mkdtemp", path.data());
  return socket_folder(path.data());
}

socket_folder::~socket_folder() {
  if (path_.empty()) return;
  ::unlink(socket().c_str());
  ::rmdir(path_.c_str());
}

result<tokenizer_process> tokenizer_process::start(const tokenizer_settings& settings, time_point now) {
  std::optional<socket_folder> folder;
  std::string socket = settings.socket;
  if (socket.empty()) {
    auto made = socket_folder::make();
    if (!made) return std::unexpected(made.error());
    socket = folder.emplace(std::move(*made)).socket();
  }
  auto command = command_of(settings, socket);
  if (!command) return std::unexpected(command.error());
  tokenizer_process made(std::move(folder), std::move(socket), std::move(*command));
  if (auto launched = made.launch(now); !launched) return std::unexpected(launched.error());
  return made;
}

tokenizer_process::~tokenizer_process() {
  stop();
}

result<void> tokenizer_process::launch(time_point now) {
  // Ctrl-C is for the indexer, which ends its tokenizer.
  auto child = child_process::start(
      {.command = command_, .die_with_parent = true, .discard_output = true, .own_group = true, .close_others = true});
  if (!child) return std::unexpected(child.error());
  child_.emplace(std::move(*child));
  started_ = now;
  log_info(logger("indexer"), "the tokenizer starts", {{"pid", child_->pid()}});
  return {};
}

void tokenizer_process::look(time_point now) {
  if (child_) {
    const auto end = child_->ended();
    if (!end) return;
    if (now - started_ >= steady_life) delay_ = first_delay;
    log_warn(logger("indexer"), "the tokenizer has ended and is started again", {{"reason", end->describe()}});
    child_.reset();
    next_start_ = now + delay_;
    delay_ = std::min(delay_ * 2, longest_delay);
  }
  if (now < next_start_) return;
  if (auto launched = launch(now); !launched) {
    log_warn(logger("indexer"), "the tokenizer cannot be started", {{"reason", launched.error().message()}});
    next_start_ = now + longest_delay;
  }
}

void tokenizer_process::stop() noexcept {
  if (!child_) return;
  child_->signal(SIGTERM);
  child_->signal(SIGCONT);
  pollfd end{.fd = child_->pidfd(), .events = POLLIN, .revents = 0};
  ::poll(&end, 1, end_limit_ms);
  child_.reset();
}

}  // namespace cenote::indexer
