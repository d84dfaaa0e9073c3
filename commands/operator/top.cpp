#include "commands/operator/top.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>
#include <CLI/CLI.hpp>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "commands/operator/top_frame.hpp"

namespace cenote {

namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using std::chrono::steady_clock;

constexpr auto ask_limit = 2s;

struct top_options {
  socket_option where;
  bool once = false;
  double interval = 1;
};

/// The terminal without echo and line buffering, on its second screen; as it was when this ends.
class raw_terminal {
 public:
  raw_terminal() {
    changed_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (changed_) {
      termios raw = before_;
      raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      raw.c_cc[VSUSP] = _POSIX_VDISABLE;  // stopped, it would leave the terminal like this
      ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    }
    std::fputs("\x1b[?1049h\x1b[?25l", stdout);  // second screen, no cursor
  }
  raw_terminal(const raw_terminal&) = delete;
  raw_terminal& operator=(const raw_terminal&) = delete;
  ~raw_terminal() {
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
    if (changed_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }

 private:
  termios before_{};
  bool changed_ = false;
};

frame_style style_of_terminal() {
  winsize size{};
  frame_style style{.colours = true};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    style.columns = size.ws_col;
    style.rows = size.ws_row > 0 ? size.ws_row - 1U : 0U;
  }
  return style;
}

/// Home, the lines, each with the rest of the old one wiped, and nothing below.
void draw(const std::string& frame) {
  std::string out = "\x1b[H";
  for (const char each : frame) out += each == '\n' ? std::string("\x1b[K\n") : std::string(1, each);
  out += "\x1b[J";
  std::fputs(out.c_str(), stdout);
  std::fflush(stdout);
}

/// Waits for a key or a time; a signal (of a resize, say) ends it, too. False: the user wants to leave.
bool wait_for_key(double seconds) {
  pollfd keys{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  if (::poll(&keys, 1, static_cast<int>(seconds * 1000)) <= 0) return true;
  char key = 0;
  if (::read(STDIN_FILENO, &key, 1) != 1) return false;
  return key != 'q' && key != 'Q' && key != 3;
}

/// A new size of the terminal ends the wait for a key: the next frame fits it.
void watch_for_resizes() {
  struct sigaction action {};
  action.sa_handler = [](int) {};
  ::sigaction(SIGWINCH, &action, nullptr);
}

/// Draws until the user leaves. A node that goes away is waited for.
void follow(const top_options& options) {
  const raw_terminal terminal;
  json before;
  auto asked = steady_clock::now();
  while (!interrupted()) {
    auto now = ask(options.where.path, {{"command", "status"}}, ask_limit);
    const auto at = steady_clock::now();
    if (interrupted()) break;
    if (now) {
      draw(top_frame(*now, before, std::chrono::duration<double>(at - asked).count(), style_of_terminal()));
      before = std::move(*now);
      asked = at;
    } else {
      const std::string line = "no answer from the node, waiting for it: " + now.error().message();
      draw(line.substr(0, style_of_terminal().columns) + "\n");
      before = nullptr;
    }
    if (!wait_for_key(options.interval)) break;
  }
}

exit_code run_top(const top_options& options) {
  if (options.once) {
    const auto status = ask(options.where.path, {{"command", "status"}});
    if (!status) return failed_with(status.error());
    fmt::print("{}", top_frame(*status, nullptr, 0, {.columns = std::string::npos}));
    return exit_code::orderly;
  }
  if (::isatty(STDIN_FILENO) != 1 || ::isatty(STDOUT_FILENO) != 1) {
    return failed_with({error_code::invalid_argument, "top draws on a terminal; without one use --once"});
  }
  watch_for_interruption();
  watch_for_resizes();
  follow(options);
  return exit_code::orderly;
}

}  // namespace

void add_top(CLI::App& app) {
  auto* command = app.add_subcommand("top", "Tiers, movement, queues and sessions, drawn anew every second");
  auto options = std::make_shared<top_options>();
  options->where.add_to(*command);
  command->add_flag("--once", options->once, "One frame without rates and colours, then end");
  command->add_option("--interval", options->interval, "Seconds between frames")
      ->check(CLI::Range(0.1, 3600.0))
      ->capture_default_str();
  command->footer("q or ctrl-C ends it.");
  command->callback([options] { end_with(run_top(*options)); });
}

}  // namespace cenote
