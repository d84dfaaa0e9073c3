#include "commands/replay/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "commands/replay/result.hpp"
#include "core/units.hpp"

namespace cenote::replay {

namespace {

constexpr double line_every = 5;   // seconds, where there is no terminal
constexpr double rate_window = 5;  // seconds that the rate is taken over
constexpr std::size_t widest = 160;
constexpr std::size_t bar_width = 24;

std::size_t terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::min<std::size_t>(size.ws_col, widest);
}

std::string time_text(double seconds) {
  const long long whole = std::llround(seconds);
  if (whole < 3600) return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60, whole % 60);
}

}  // namespace

std::string progress_text(const progress_state& before, const progress_state& now, std::size_t width) {
  const double passed = now.seconds - before.seconds;
  const double requests = ratio(static_cast<double>(now.done - before.done), passed);
  const double share = ratio(static_cast<double>(now.done), static_cast<double>(now.planned));
  const auto left = static_cast<double>(now.planned - std::min(now.done, now.planned));
  std::string time = "-";
  if (now.seconds_left) {
    time = time_text(*now.seconds_left);
  } else if (requests > 0) {
    time = time_text(left / requests);
  }
  std::string text =
      fmt::format("{:3.0f} %  {}/{} requests  {:.0f}/s  {:.2f} GiB/s  hit {:.1f} %  {} left", share * 100, now.done,
                  now.planned, requests, ratio(static_cast<double>(now.bytes - before.bytes), passed) / GiB,
                  100 * ratio(static_cast<double>(now.hit_tokens), static_cast<double>(now.tokens)), time);
  if (width == 0) return text;
  const auto full = static_cast<std::size_t>(share * bar_width);
  text = "[" + std::string(full, '#') + std::string(bar_width - std::min(full, bar_width), '.') + "] " + text;
  return text.substr(0, width - 1);
}

progress::progress(bool quiet) : quiet_(quiet), terminal_(::isatty(STDERR_FILENO) == 1), next_line_(line_every) {}

void progress::show(const progress_state& now) {
  if (quiet_) return;
  while (recent_.size() > 1 && now.seconds - recent_[1].seconds >= rate_window) recent_.pop_front();
  const progress_state from = recent_.empty() ? progress_state{} : recent_.front();
  recent_.push_back(now);
  if (terminal_) {
    std::fputs(("\r" + progress_text(from, now, terminal_width()) + "\x1b[K").c_str(), stderr);
    std::fflush(stderr);
    drawn_ = true;
  } else if (now.seconds >= next_line_) {
    std::fputs((progress_text(from, now, 0) + "\n").c_str(), stderr);
    next_line_ = now.seconds + line_every;
  }
}

void progress::finish() {
  if (drawn_) std::fputs("\n", stderr);
  drawn_ = false;
}

}  // namespace cenote::replay
