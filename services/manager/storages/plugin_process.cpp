#include "services/manager/storages/plugin_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <utility>

#include "config/logging.hpp"
#include "core/text.hpp"
#include "keeper/command_line.hpp"

namespace cenote::manager {

namespace {

constexpr int end_limit_ms = 100;  ///< for a program that has closed its output, until it is killed
constexpr std::size_t read_bytes = std::size_t{64} << 10U;

struct both_ends {
  unique_fd parent{}, child{};
};

/// The child writes, and this process reads without waiting.
result<both_ends> make_output() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno("pipe2");
  both_ends made{.parent = unique_fd(ends[0]), .child = unique_fd(ends[1])};
  if (::fcntl(made.parent.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("fcntl");
  return made;
}

/// The child reads, and this process writes. A socket, as a pipe raises SIGPIPE.
result<both_ends> make_input() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) return fail_errno("socketpair");
  both_ends made{.parent = unique_fd(ends[0]), .child = unique_fd(ends[1])};
  if (::fcntl(made.parent.get(), F_SETFL, O_NONBLOCK) != 0) return fail_errno("fcntl");
  return made;
}

/// Reads once: the bytes; 0: the other side has closed; nothing: there is nothing to read.
std::optional<std::size_t> read_some(int file, std::array<char, read_bytes>& bytes) {
  ssize_t size = 0;
  do {
    size = ::read(file, bytes.data(), bytes.size());
  } while (size < 0 && errno == EINTR);
  if (size < 0) return errno == EAGAIN ? std::nullopt : std::optional<std::size_t>(0);
  return static_cast<std::size_t>(size);
}

int wait_ms(plugin_time deadline) noexcept {
  const auto rest = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(rest, 0, 60'000));
}

}  // namespace

void error_lines::add(std::string_view bytes) {
  for (const char each : bytes) {
    if (each == '\n') {
      end_line();
    } else if (line_.size() < longest_line) {
      line_ += each;
    }
  }
}

void error_lines::end_line() {
  if (lines_ < most_lines) {
    log_info(logger("manager"), "a plug-in reports", {{"storage", storage_}, {"text", as_utf8(line_)}});
  }
  ++lines_;
  line_.clear();
}

result<std::unique_ptr<plugin_process>> plugin_process::start(const std::vector<std::string>& command,
                                                              std::string storage, int stop) {
  auto input = make_input();
  if (!input) return std::unexpected(input.error());
  auto output = make_output();
  if (!output) return std::unexpected(output.error());
  auto errors = make_output();
  if (!errors) return std::unexpected(errors.error());
  auto child = child_process::start({.command = command,
                                     .die_with_parent = true,
                                     .input = input->child.get(),
                                     .output = output->child.get(),
                                     .errors = errors->child.get(),
                                     .own_group = true,
                                     .close_others = true});
  if (!child) return std::unexpected(child.error());
  std::unique_ptr<plugin_process> made(new plugin_process(std::move(*child), std::move(storage), stop));
  made->input_ = std::move(input->parent);
  made->output_ = std::move(output->parent);
  made->error_output_ = std::move(errors->parent);
  return made;
}

plugin_process::~plugin_process() {
  read_errors();
  (void)end();
}

std::string plugin_process::end() {
  pollfd ended{.fd = child_.pidfd(), .events = POLLIN, .revents = 0};
  if (!output_) ::poll(&ended, 1, end_limit_ms);
  ::kill(-child_.pid(), SIGKILL);  // before it is reaped: until then the number is its own
  child_.signal(SIGKILL);
  ::poll(&ended, 1, end_limit_ms);
  const auto how = child_.ended();
  return how ? how->describe() : "it does not end";
}

result<> plugin_process::wait(bool has_more_to_send, plugin_time deadline) {
  const int most = wait_ms(deadline);
  if (most == 0) return fail(error_code::deadline_exceeded, "the plug-in does not answer");
  std::array<pollfd, 5> events{{
      {.fd = output_.get(), .events = POLLIN, .revents = 0},
      {.fd = error_output_.get(), .events = POLLIN, .revents = 0},
      {.fd = stop_, .events = POLLIN, .revents = 0},
      {.fd = child_.pidfd(), .events = POLLIN, .revents = 0},
      {.fd = has_more_to_send ? input_.get() : -1, .events = POLLOUT, .revents = 0},
  }};
  if (::poll(events.data(), events.size(), most) < 0 && errno != EINTR) return fail_errno("poll");
  if (events[1].revents != 0) read_errors();
  if (events[2].revents != 0) return fail(error_code::closed, "the storage is given up");
  if (events[3].revents != 0 && events[0].revents == 0) {
    output_.reset();
    return fail(error_code::not_running, "the plug-in has ended: " + end());
  }
  return {};
}

result<> plugin_process::send(std::string_view& rest) {
  while (!rest.empty()) {
    const ssize_t sent = ::send(input_.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return {};
    if (sent < 0) {
      output_.reset();
      return fail(error_code::not_running, "the plug-in reads no more: " + end());
    }
    rest.remove_prefix(static_cast<std::size_t>(sent));
  }
  return {};
}

result<> plugin_process::receive() {
  std::array<char, read_bytes> bytes;
  while (const auto size = read_some(output_.get(), bytes)) {
    if (*size == 0) {
      output_.reset();
      read_errors();
      return fail(error_code::not_running, "the plug-in has ended: " + end());
    }
    received_.append(bytes.data(), *size);
    if (received_.size() > longest_answer) return fail(error_code::malformed, "the plug-in's line is too long");
    if (received_.find('\n', searched_) != std::string::npos) return {};
    searched_ = received_.size();
  }
  return {};
}

void plugin_process::read_errors() {
  std::array<char, read_bytes> bytes;
  if (!error_output_) return;
  const auto size = read_some(error_output_.get(), bytes);
  if (!size) return;
  if (*size == 0) return error_output_.reset();
  errors_.add({bytes.data(), *size});
}

std::optional<result<std::string>> plugin_process::answer() {
  const std::size_t line_end = received_.find('\n', searched_);
  if (line_end == std::string::npos) return std::nullopt;
  if (line_end + 1 != received_.size()) {
    return fail(error_code::malformed, "the plug-in answers with more than a line");
  }
  received_.pop_back();
  searched_ = 0;
  return std::exchange(received_, {});
}

result<std::string> plugin_process::ask(std::string_view line, plugin_time deadline) {
  errors_.renew();
  if (auto early = receive(); !early) return std::unexpected(early.error());
  if (!received_.empty()) return fail(error_code::malformed, "the plug-in writes without being asked");
  for (;;) {
    if (auto sent = send(line); !sent) return std::unexpected(sent.error());
    if (auto came = wait(!line.empty(), deadline); !came) return std::unexpected(came.error());
    if (auto read = receive(); !read) return std::unexpected(read.error());
    if (auto whole = answer()) return std::move(*whole);
  }
}

result<std::unique_ptr<plugin_program>> plugin_program::make(std::string command, std::string storage) {
  unique_fd stop(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!stop) return fail_errno("eventfd");
  return std::unique_ptr<plugin_program>(new plugin_program(std::move(command), std::move(storage), std::move(stop)));
}

result<std::unique_ptr<plugin_channel>> plugin_program::start() {
  auto words = command_words(command_);
  const std::string path = words.empty() ? "" : program_path(words.front());
  if (path.empty()) {
    return fail(error_code::invalid_config,
                "manager.plugins: `" + command_ + "` begins with no program that can be executed");
  }
  words.front() = path;
  return plugin_process::start(words, storage_, stop_.get());
}

void plugin_program::cancel() noexcept {
  const std::uint64_t one = 1;
  (void)::write(stop_.get(), &one, sizeof(one));
}

}  // namespace cenote::manager
