#include "commands/optimize/watched_work.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <thread>
#include <utility>

#include "commands/replay/parallel.hpp"

namespace cenote::optimize {

namespace {

using std::chrono::steady_clock;

constexpr auto quiet_time = std::chrono::seconds(1);
constexpr auto line_every = std::chrono::milliseconds(200);

}  // namespace

std::string work_text(const std::string& name, std::size_t done, std::size_t planned, double seconds) {
  std::string text = fmt::format("{}: {} of {}", name, done, planned);
  if (done == 0) return text;
  const auto open = static_cast<double>(planned - std::min(done, planned));
  const auto left = std::llround(std::min(seconds / static_cast<double>(done) * open, 359'999.0));
  return text + fmt::format(", {}:{:02} left", left / 60, left % 60);
}

watched_work::watched_work(std::string name, std::size_t planned)
    : name_(std::move(name)),
      planned_(planned),
      has_terminal_(::isatty(STDERR_FILENO) == 1),
      start_(steady_clock::now()),
      next_line_(start_ + quiet_time) {}

watched_work::~watched_work() {
  if (is_drawn_) std::fputs("\r\x1b[K", stderr);
}

void watched_work::run(std::size_t count, const std::function<void(std::size_t)>& work) {
  const auto caller = std::this_thread::get_id();
  replay::run_all(count, [&](std::size_t i) {
    work(i);
    ++done_;
    if (has_terminal_ && std::this_thread::get_id() == caller) show();
  });
}

void watched_work::show() {
  const auto now = steady_clock::now();
  if (now < next_line_) return;
  next_line_ = now + line_every;
  is_drawn_ = true;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  std::fputs(("\r" + work_text(name_, done_, planned_, seconds) + "\x1b[K").c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace cenote::optimize
