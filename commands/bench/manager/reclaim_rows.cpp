// Evictions at full rate, beside a reader.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>

#include "commands/bench/manager/reader_load.hpp"
#include "commands/bench/manager/rows.hpp"

namespace cenote::bench {

namespace {

constexpr unsigned reclaim_rounds = 5;
constexpr double round_share = 0.1;  // of all blocks, which a round evicts: more than lie between level and goal
constexpr double timed_share = 0.9;  // of a round's evictions, since the last ones may be few at a time
constexpr double goal_share = 0.85;  // of a quota, what stays: the level of 0.9 less a step of 5 %
constexpr double quiet_seconds = 0.3;
constexpr double most_seconds = 60;
constexpr double alone_seconds = 0.5;

/// Blocks that the manager has evicted.
class eviction_count {
 public:
  explicit eviction_count(private_manager& manager) : evicted_(manager.writer().figures().evicted) {}

  [[nodiscard]] double now() const { return static_cast<double>(evicted_.load(std::memory_order_relaxed)); }
  /// Waits until there are at least so many, which it gives. Errors: deadline_exceeded, interrupted.
  [[nodiscard]] result<double> wait_for(double blocks) const {
    const stopwatch time;
    for (;;) {
      const double count = now();
      if (count >= blocks) return count;
      if (auto go_on = check_interrupted(); !go_on) return std::unexpected(go_on.error());
      if (time.seconds() > most_seconds) return fail(error_code::deadline_exceeded, "the manager evicts too little");
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
  void wait_until_quiet() const {
    double count = now();
    for (stopwatch time; time.seconds() < quiet_seconds;) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      if (now() == count) continue;
      count = now();
      time = {};
    }
  }

 private:
  const std::atomic<std::uint64_t>& evicted_;
};

struct eviction_rates {
  double blocks = 0;   ///< evicted per second
  double lookups = 0;  ///< per second, meanwhile
};

/// Evicts until `staying` bytes stay, which are `goal` blocks less. The reader starts with the first evictions, and
/// ends with the timed ones.
result<eviction_rates> evict(private_manager& manager, const reader_load& load, double staying, double goal) {
  const eviction_count evicted(manager);
  const double before = evicted.now();
  if (auto limited = manager.limit_bytes(static_cast<std::int64_t>(staying / goal_share)); !limited) {
    return std::unexpected(limited.error());
  }
  const auto first = evicted.wait_for(before + 1);
  if (!first) return std::unexpected(first.error());
  const stopwatch time;
  std::atomic<bool> is_over{false};
  eviction_rates rates;
  std::thread reader([&] { rates.lookups = load.rate(is_over, most_seconds); });
  const auto last = evicted.wait_for(before + timed_share * goal);
  const double seconds = time.seconds();
  is_over.store(true);
  reader.join();
  if (!last) return std::unexpected(last.error());
  rates.blocks = (*last - *first) / std::max(seconds, 1e-6);
  evicted.wait_until_quiet();
  return rates;
}

}  // namespace

result<void> run_reclaim_rows(const row_context& context) {
  const auto opened = context.manager.open(context.manager.own_journal());
  if (!opened) return std::unexpected(opened.error());
  const auto content = context.manager.content();
  if (!content) return std::unexpected(content.error());
  const reader_load load(context.manager, context.chains);
  // Blocks that are read were used last, so they stay; so do those of eight specs, of which fewer would have to go.
  for (std::uint64_t chain = 0; chain < wide_chains; ++chain) {
    (void)context.manager.ask(
        manager::rpc::get_cache_location,
        chain_request<manager::proto::meta::GetCacheLocationRequest>(chain_kind::eight_specs, chain));
  }
  const std::uint64_t answer_bytes = load.answer_bytes();
  const double goal = round_share * content->keys;
  samples evictions, shares;
  for (unsigned round = 1; round <= reclaim_rounds; ++round) {
    const double alone = load.rate(alone_seconds);
    const double staying = content->bytes - goal * round * spec_bytes;
    const auto rates = evict(context.manager, load, staying, goal);
    if (!rates) return std::unexpected(rates.error());
    evictions.add(rates->blocks);
    shares.add(rates->lookups / alone);
  }
  if (load.answer_bytes() != answer_bytes) return fail(error_code::internal, "blocks were evicted that are in use");
  context.out.add(time_figure("manager", "evictions beside a reader", evictions, {}, 1, "blocks/s",
                              {bound::kind::value_at_least, 200'000}));
  context.out.add_share("that reader, against alone", shares, 0.8);
  return {};
}

}  // namespace cenote::bench
