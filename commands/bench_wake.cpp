// What a request to the node costs beside waking another process and being woken by it.
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <utility>

#include "commands/bench_ping_pong.hpp"
#include "commands/bench_support.hpp"

namespace cenote::bench {

namespace {

constexpr std::uint64_t capacity = 512 * MiB;
constexpr std::size_t calls = 200;  // of each kind a round
constexpr std::size_t puts = 50;
constexpr std::size_t buffers = 64;
constexpr unsigned default_rounds = 20;
constexpr double microseconds = 1e6;

/// Times `work` `count` times; round 0 only warms up.
template <class Work>
result<void> time_calls(samples& into, bool counts, std::size_t count, Work&& work) {
  for (std::size_t i = 0; i < count; ++i) {
    const stopwatch time;
    auto done = work(i);
    if (counts) into.add(time.seconds());
    if (!done) return done;
  }
  return {};
}

class wake_bench {
 public:
  static constexpr std::uint64_t block_bytes = 128 * KiB;

  wake_bench(client::session& session, ping_pong other) : session_(session), other_(std::move(other)) {}

  result<void> prepare() {
    if (auto reserved = session_.reserve(key_list(5, 0, buffers).all(), 0, std::nullopt, reserved_); !reserved) {
      return reserved;
    }
    for (const auto& each : reserved_) std::memcpy(each.data, sources_.piece(0), block_bytes);
    // Every block of the tier once: page faults are over, and each later put evicts.
    for (std::size_t i = 0; i < 2 * capacity / block_bytes; ++i) {
      if (auto stored = put(i); !stored) return stored;
    }
    wait_until_settled();
    return {};
  }

  result<void> run_round(bool counts) {
    const auto pinged = [this](std::size_t) { return other_.call(); };
    const auto barred = [this](std::size_t) { return session_.barrier(); };
    const auto copied = [this](std::size_t i) -> result<void> {
      std::memcpy(reserved_[i % buffers].data, sources_.piece(next_source_++ % buffers), block_bytes);
      return {};
    };
    if (auto ok = time_calls(ping_, counts, calls, pinged); !ok) return ok;
    if (auto ok = time_calls(barrier_, counts, calls, barred); !ok) return ok;
    if (auto ok = time_calls(copy_, counts, puts, copied); !ok) return ok;
    return time_calls(put_, counts, puts, [this](std::size_t i) { return put(i); });
  }

  void say(const std::string& where, bool promised, report& out) const {
    const auto at_most = [&](double ratio) { return promised ? bound{bound::kind::ratio_at_most, ratio} : bound{}; };
    out.add(time_figure("wake", "barrier, " + where, barrier_, ping_, microseconds, "us", at_most(2)));
    const double ping = ping_.median();
    const auto late = [&](std::string name, const samples& all, double limit, double ratio) {
      out.add({.bench = "wake",
               .name = std::move(name),
               .value = all.quantile(0.99) * microseconds,
               .unit = "us",
               .limit = limit * microseconds,
               .promise = at_most(ratio)});
    };
    late("barrier p99, " + where, barrier_, ping, 15);
    samples both;
    both.add(ping + copy_.median());
    out.add(time_figure("wake", "put 128 KiB, " + where, put_, both, microseconds, "us", at_most(1.5)));
    late("put 128 KiB p99, " + where, put_, put_.median(), 5);
  }

 private:
  result<void> put(std::size_t i) {
    const key_list key(6, next_key_++, 1);
    return session_.put(key.all(), 0, std::nullopt, sources_.some((next_source_++ + i) % buffers, 1)).status;
  }

  client::session& session_;
  ping_pong other_;
  memory_pieces sources_{buffers, block_bytes};
  std::vector<client::reserved_block> reserved_ = std::vector<client::reserved_block>(buffers);
  std::uint64_t next_key_ = 0;
  std::size_t next_source_ = 0;
  samples ping_, barrier_, copy_, put_;
};

result<void> measure(const options& how, const std::string& place, bool promised, report& out) {
  auto other = ping_pong::start();
  if (!other) return std::unexpected(other.error());
  auto where = stage::open(how, capacity);
  if (!where) return std::unexpected(where.error());
  auto session = where->attach("wake", wake_bench::block_bytes);
  if (!session) return std::unexpected(session.error());
  wake_bench bench(**session, std::move(*other));
  if (auto ready = bench.prepare(); !ready) return ready;
  const unsigned rounds = how.rounds != 0 ? how.rounds : default_rounds;
  for (unsigned round = 0; round <= rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    if (auto ok = bench.run_round(round != 0); !ok) return ok;
  }
  bench.say(place, promised, out);
  return (*session)->clear();
}

}  // namespace

result<void> run_wake(const options& how, report& out) {
  {
    const one_processor pinned;
    if (auto ok = measure(how, "one core", true, out); !ok) return ok;
  }
  return measure(how, "any core", false, out);
}

}  // namespace cenote::bench
