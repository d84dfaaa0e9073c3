#include "commands/bench/manager/rival_program.hpp"

#include <fcntl.h>
#include <poll.h>

#include <array>
#include <csignal>
#include <nlohmann/json.hpp>

#include "commands/bench/support.hpp"
#include "commands/interruption.hpp"

namespace cenote::bench {

namespace {

constexpr int look_pause = 100;  // ms between two looks for an interruption
constexpr double seconds_of_microsecond = 1e-6;

std::unexpected<error> wrong_line(std::string_view line) {
  return fail(error_code::malformed,
              R"(the program beside prints no {"row": NAME, "us": [NUMBER…]}: )" + std::string(line.substr(0, 100)));
}

}  // namespace

result<rival_program> rival_program::start(const std::string& program) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return fail_errno("pipe");
  unique_fd lines(ends[0]);
  const unique_fd output(ends[1]);
  child_process::setup how;
  how.command = {program};
  how.output = output.get();
  how.die_with_parent = true;
  how.own_group = true;
  auto process = child_process::start(how);
  if (!process) return std::unexpected(process.error());
  rival_program made(std::move(*process), std::move(lines));
  made.signal(SIGSTOP);
  return made;
}

/// Its group is made by itself, and may not be there yet.
void rival_program::signal(int number) noexcept {
  if (::kill(-process_.pid(), number) != 0) process_.signal(number);
}

result<void> rival_program::take_turn() {
  if (is_over_) return {};
  const stopwatch time;
  signal(SIGCONT);
  for (;;) {
    pollfd waiting{.fd = lines_.get(), .events = POLLIN, .revents = 0};
    const int count = ::poll(&waiting, 1, look_pause);
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    if (time.seconds() > patience) return fail(error_code::deadline_exceeded, "the program beside prints no line");
    if (count <= 0) continue;
    const auto has_line = read_lines();
    if (!has_line) return std::unexpected(has_line.error());
    if (is_over_) return check_end();
    if (!*has_line) continue;
    signal(SIGSTOP);
    return {};
  }
}

result<void> rival_program::take_last_turns() {
  while (!is_over_) {
    if (auto done = take_turn(); !done) return done;
  }
  return {};
}

const samples* rival_program::find(std::string_view row) const {
  const auto entry = rows_.find(row);
  return entry == rows_.end() ? nullptr : &entry->second;
}

result<bool> rival_program::read_lines() {
  std::array<char, 65'536> part{};
  const auto count = ::read(lines_.get(), part.data(), part.size());
  if (count < 0) return fail_errno("read");
  is_over_ = count == 0;
  text_.append(part.data(), static_cast<std::size_t>(count));
  if (is_over_ && !text_.empty()) text_ += '\n';
  std::size_t begin = 0;
  for (auto end = text_.find('\n'); end != std::string::npos; end = text_.find('\n', begin)) {
    if (auto taken = take_line(std::string_view(text_).substr(begin, end - begin)); !taken) {
      return std::unexpected(taken.error());
    }
    begin = end + 1;
  }
  text_.erase(0, begin);
  if (text_.size() > longest_line) return wrong_line(text_);
  return begin != 0;
}

result<void> rival_program::take_line(std::string_view line) {
  const auto parsed = nlohmann::json::parse(line, nullptr, false);
  if (!parsed.is_object() || !parsed.contains("row") || !parsed["row"].is_string() || !parsed.contains("us") ||
      !parsed["us"].is_array()) {
    return wrong_line(line);
  }
  samples& times = rows_[parsed["row"].get<std::string>()];
  for (const auto& each : parsed["us"]) {
    if (!each.is_number()) return wrong_line(line);
    times.add(each.get<double>() * seconds_of_microsecond);
  }
  return {};
}

/// Its output has ended, so it will soon.
result<void> rival_program::check_end() {
  pollfd end{.fd = process_.pidfd(), .events = POLLIN, .revents = 0};
  if (::poll(&end, 1, static_cast<int>(patience) * 1'000) <= 0) return {};
  const auto ended = process_.ended();
  if (!ended || (!ended->by_signal && ended->value == 0)) return {};
  return fail(error_code::system, "the program beside ended with " + ended->describe());
}

}  // namespace cenote::bench
