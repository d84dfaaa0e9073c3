// Evictions at full rate, beside a reader.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "commands/bench/manager/reader_load.hpp"
#include "commands/bench/manager/rows.hpp"

namespace cenote::bench {

namespace {

constexpr double block_bytes = 1 << 20U;
constexpr double most_evicted = 4e6;  // blocks
constexpr double goal_share = 0.85;   // of a quota, what stays: the level of 0.9 less a step of 5 %
constexpr double quiet_seconds = 0.5;
constexpr double most_seconds = 60;
constexpr double alone_seconds = 1;

result<double> used_bytes(private_manager& manager) {
  const stopwatch time;
  while (time.seconds() < most_seconds) {
    const auto usage = manager.writer().usage().take();
    if (!usage->groups.empty() && usage->groups.front().used != 0) {
      return static_cast<double>(usage->groups.front().used);
    }
    if (auto go_on = check_interrupted(); !go_on) return std::unexpected(go_on.error());
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return fail(error_code::deadline_exceeded, "the manager shows no usage");
}

/// Blocks evicted per second, from the first ones to the last ones.
result<double> eviction_rate(private_manager& manager, double wanted) {
  struct moment {
    double seconds = 0, blocks = 0;
  };
  const auto& evicted = manager.writer().figures().evicted;
  std::optional<moment> first;
  moment last;
  const stopwatch time;
  for (;;) {
    if (auto go_on = check_interrupted(); !go_on) return std::unexpected(go_on.error());
    const moment now{.seconds = time.seconds(), .blocks = static_cast<double>(evicted.load())};
    if (now.blocks != last.blocks) last = now;
    if (!first && now.blocks != 0) first = now;
    if (first && now.seconds - last.seconds > quiet_seconds) break;
    if (now.seconds > most_seconds) return fail(error_code::deadline_exceeded, "the manager does not evict enough");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (last.blocks < wanted / 2) return fail(error_code::internal, "the manager evicts less than its level asks for");
  return (last.blocks - first->blocks) / std::max(last.seconds - first->seconds, 1e-9);
}

}  // namespace

result<void> run_reclaim_rows(const row_context& context) {
  const auto opened = context.manager.open(context.manager.own_journal());
  if (!opened) return std::unexpected(opened.error());
  const auto used = used_bytes(context.manager);
  if (!used) return std::unexpected(used.error());
  const reader_load load(context.manager, context.chains);
  // What is read was used last, so it stays.
  const std::uint64_t answer_bytes = load.answer_bytes();
  const double alone = load.rate(alone_seconds);
  const double wanted = std::min(*used / 2 / block_bytes, most_evicted);
  std::atomic<bool> is_over{false};
  double beside = 0;
  std::thread reader([&] { beside = load.rate(is_over, most_seconds); });
  result<double> rate(0.0);
  const auto limited =
      context.manager.limit_bytes(static_cast<std::int64_t>((*used - wanted * block_bytes) / goal_share));
  if (limited) rate = eviction_rate(context.manager, wanted);
  is_over.store(true);
  reader.join();
  if (!limited) return limited;
  if (!rate) return std::unexpected(rate.error());
  if (load.answer_bytes() != answer_bytes) return fail(error_code::internal, "blocks were evicted that are in use");
  const double again = load.rate(alone_seconds);
  context.out.add({.bench = "manager",
                   .name = "evictions beside a reader",
                   .value = *rate,
                   .unit = "blocks/s",
                   .promise = {bound::kind::value_at_least, 200'000}});
  context.out.add({.bench = "manager",
                   .name = "that reader, against alone",
                   .value = beside / ((alone + again) / 2),
                   .unit = "x",
                   .promise = {bound::kind::value_at_least, 0.8}});
  return {};
}

}  // namespace cenote::bench
