#include "commands/trace/record.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <set>
#include <string>
#include <utility>

#include "commands/interruption.hpp"
#include "commands/trace/recorded_requests.hpp"
#include "core/count_text.hpp"
#include "core/machine.hpp"
#include "core/random_number.hpp"
#include "core/units.hpp"
#include "simulation/formats/format.hpp"

namespace cenote::traces {

namespace {

using nlohmann::json;

constexpr int between_questions_ms = 100;
constexpr auto between_looks_at_memory = std::chrono::seconds(1);
constexpr auto longest_time = std::chrono::years(10);  // what a clock can add to its present time
constexpr auto patience = std::chrono::seconds(30);    // with a node whose worker is away

/// A node that is asked for its requests again and again. Where its worker is replaced, the recording goes on with a
/// gap.
class recording {
 public:
  explicit recording(const record_options& options)
      : socket_(options.node.path), requests_(options.block_tokens), start_(std::chrono::steady_clock::now()) {}

  result<void> begin() {
    const auto answer = ask(socket_, {{"command", "record"}});
    if (!answer) return std::unexpected(answer.error());
    number_ = count_of(*answer, "recording");
    if (number_ == 0) return fail(error_code::malformed, "the node's answer has no `recording`");
    began_ms_ = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - start_).count());
    dropped_before_ += std::exchange(dropped_, 0);
    return {};
  }

  /// True: more waits already.
  result<bool> go_on() {
    const auto answer = ask(socket_, {{"command", "record"}, {"id", number_}});
    if (!answer) return std::unexpected(answer.error());
    dropped_ = count_of(*answer, "dropped");
    if (auto ok = requests_.add(*answer, began_ms_); !ok) return std::unexpected(ok.error());
    print_new_reasons();
    const json& more = member(*answer, "more");
    return more.is_boolean() && more.get<bool>();
  }

  /// Begins anew with a node that was away; what it was asked for meanwhile is missing.
  result<void> come_back(const error& reason) {
    const auto until = std::chrono::steady_clock::now() + patience;
    while (!begin()) {
      if (interrupted() || std::chrono::steady_clock::now() > until) return std::unexpected(reason);
      (void)::poll(nullptr, 0, between_questions_ms);
    }
    fmt::print(stderr, "cenote: requests are missing, {} s after the start: {}\n", began_ms_ / 1000, reason.message());
    return {};
  }

  /// The next recording need not wait until this one is given up.
  void end() const { (void)ask(socket_, {{"command", "record_end"}, {"id", number_}}); }

  [[nodiscard]] recorded_requests& requests() noexcept { return requests_; }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return dropped_before_ + dropped_; }

 private:
  /// Soon, while a person can still begin anew with other options.
  void print_new_reasons() {
    for (const auto& [reason, count] : requests_.left_out()) {
      if (printed_.insert(reason).second) fmt::print(stderr, "cenote: requests are left out: {}\n", reason);
    }
  }

  std::string socket_;
  std::set<std::string> printed_{};
  recorded_requests requests_;
  std::chrono::steady_clock::time_point start_;
  std::uint64_t number_ = 0;
  std::uint64_t began_ms_ = 0;
  std::uint64_t dropped_ = 0;
  std::uint64_t dropped_before_ = 0;  ///< by recordings before a gap
};

/// An answer that a worker which is replaced gives, or does not.
bool is_away(const error& reason) {
  return reason.code() == error_code::closed || reason.code() == error_code::node_restarting ||
         reason.code() == error_code::not_running || reason.code() == error_code::deadline_exceeded;
}

/// Until the time is over, a person ends it, or what ended it is returned.
result<void> run(recording& one, std::chrono::steady_clock::time_point end) {
  auto next_look = std::chrono::steady_clock::now();
  while (!interrupted() && std::chrono::steady_clock::now() < end) {
    const auto more = one.go_on();
    if (!more) {
      if (!is_away(more.error())) return std::unexpected(more.error());
      if (auto back = one.come_back(more.error()); !back) return back;
    }
    if (std::chrono::steady_clock::now() >= next_look) {
      next_look = std::chrono::steady_clock::now() + between_looks_at_memory;
      if (memory_to_spare() < one.requests().bytes() / 2) {
        return fail(error_code::limit_exceeded, "memory is nearly used up");
      }
    }
    if (!more || !*more) (void)::poll(nullptr, 0, between_questions_ms);
  }
  while (true) {  // what waits; an interruption is no reason to lose it
    const auto more = one.go_on();
    if (!more) return std::unexpected(more.error());
    if (!*more) return {};
  }
}

void print_losses(recording& one) {
  for (const auto& [reason, count] : one.requests().left_out()) {
    fmt::print(stderr, "cenote: {} left out: {}\n", count_text(count, "request"), reason);
  }
  if (one.requests().cut() != 0) {
    fmt::print(stderr,
               "cenote: of {} more blocks were not there than a client names: those in the middle are missing\n",
               count_text(one.requests().cut(), "request"));
  }
  if (one.dropped() != 0) fmt::print(stderr, "cenote: {} came too fast\n", count_text(one.dropped(), "request"));
}

exit_code write(recording& one, const record_options& options) {
  std::uint64_t lost = one.dropped();
  for (const auto& [reason, count] : one.requests().left_out()) lost += count;
  read_trace source{.format = own_format,
                    .requests = std::move(one.requests()).take(),
                    .warnings = {},
                    .left_out = lost,
                    .full_blocks = true,
                    .anonymised = !options.identities};
  source.lines = source.requests.requests().size() + lost;
  if (!options.identities) source.seed = random_number();
  return write_target(std::move(source), options.node.path, options.target);
}

}  // namespace

void record_options::add_to(CLI::App& command) {
  node.add_to(command);
  target.add_to(command);
  command.add_option("--for", time, "So long, such as 90s or 1h; without it until interrupted");
  command
      .add_option("--block-tokens", block_tokens,
                  "Tokens of a block of instances that name none; others are recorded if theirs have as many")
      ->check(CLI::Range(std::uint64_t{1}, formats::most_block_tokens));
  command.add_flag("--identities", identities, "Keep the node's identities of blocks, which are made of their keys");
}

exit_code run_record(const record_options& options) {
  if (auto ok = options.target.check(); !ok) return failed_with(ok.error());
  auto end = std::chrono::steady_clock::time_point::max();
  if (!options.time.empty()) {
    const auto time = parse_duration(options.time);
    if (!time) return failed_with(time.error().in("--for"));
    if (*time <= std::chrono::nanoseconds::zero()) {
      return failed_with({error_code::invalid_argument, "--for must be longer than zero"});
    }
    end = std::chrono::steady_clock::now() + std::min<std::chrono::nanoseconds>(*time, longest_time);
  }
  watch_for_interruption();
  recording one(options);
  if (auto begun = one.begin(); !begun) return failed_with(begun.error());
  fmt::print(stderr, "recording requests of {}; Ctrl-C ends it\n", options.node.path);
  const auto done = run(one, end);
  if (done) one.end();
  print_losses(one);
  if (one.requests().requests().requests().empty()) {
    return failed_with(done ? error(error_code::closed, "no request came: nothing is written") : done.error());
  }
  const exit_code written = write(one, options);
  if (done || written != exit_code::orderly) return written;
  return failed_with(done.error().in("the recording ended early; what came before is written"));
}

}  // namespace cenote::traces
