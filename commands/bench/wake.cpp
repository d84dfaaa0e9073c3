// What a request to the node costs beside waking another process and being woken by it.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "commands/bench/ping_pong.hpp"
#include "commands/bench/support.hpp"

namespace cenote::bench::wake_bench {

namespace {

constexpr std::uint64_t capacity = 512 * MiB;
constexpr std::size_t calls = 200;  // of each kind a round
constexpr std::size_t puts = 50;
constexpr std::uint64_t memory = 64 * MiB;   // of sources, and of what memcpy writes to: more than any cache
constexpr std::size_t most_reserved = 2000;  // the node's own bound is 3,000
constexpr unsigned default_rounds = 20;
constexpr double microseconds = 1e6;

/// Times `work` `count` times.
template <class Work>
result<void> time_calls(samples& into, bool counts, std::size_t count, Work&& work) {
  for (std::size_t i = 0; i < count; ++i) {
    const stopwatch time;
    auto done = work();
    if (counts) into.add(time.seconds());
    if (!done) return done;
  }
  return {};
}

/// Where all this is measured, and what is promised there.
struct writer_place {
  std::string name;
  bool promised = false;

  [[nodiscard]] bound at_most(double ratio) const {
    return promised ? bound{bound::kind::ratio_at_most, ratio} : bound{};
  }
};

/// Puts of one block, waiting or not, beside memcpy into blocks that nobody else has.
class put_calls {
 public:
  put_calls(client::session& session, std::uint64_t block_bytes)
      : session_(session),
        block_bytes_(block_bytes),
        count_(std::min<std::uint64_t>(memory / block_bytes, most_reserved)),
        sources_(count_, block_bytes),
        reserved_(count_) {}

  result<void> prepare() {
    const key_list keys(5, 0, count_);
    if (auto reserved = session_.reserve(keys.all(), 0, std::nullopt, reserved_); !reserved) return reserved;
    for (const auto& each : reserved_) std::memcpy(each.data, sources_.piece(0), block_bytes_);
    // Every block of the tier once: page faults are over, and each later put takes another block's place.
    for (std::uint64_t stored = 0; stored < capacity; stored += count_ * block_bytes_) {
      const key_list some(6, next_key_, count_);
      next_key_ += count_;
      if (auto put = session_.put(some.all(), 0, std::nullopt, sources_.some(0, count_)); !put.status)
        return put.status;
    }
    return {};
  }

  result<void> run_round(bool counts) {
    const auto waiting = [this] { return put(&client::session::put); };
    const auto going_on = [this] { return put(&client::session::put_async); };
    const auto copied = [this] {
      std::memcpy(reserved_[next()].data, sources_.piece(next_source_), block_bytes_);
      return result<void>();
    };
    if (auto ok = time_calls(copy_, counts, puts, copied); !ok) return ok;
    if (auto ok = time_calls(put_, counts, puts, waiting); !ok) return ok;
    if (auto ok = time_calls(async_, counts, puts, going_on); !ok) return ok;
    const auto flushed = session_.flush();
    return flushed ? result<void>() : std::unexpected(flushed.error());
  }

  void say(const samples& ping, const writer_place& where, report& out) const {
    const auto name = fmt::format("put {} KiB", block_bytes_ / KiB);
    const bool small = block_bytes_ < 128 * KiB;  // of a larger one the copy is most, which nobody can leave out
    samples least;
    least.add(ping.median() + copy_.median());
    out.add(time_figure("wake", fmt::format("{}, {}", name, where.name), put_, least, microseconds, "us",
                        small ? bound{} : where.at_most(1.5)));
    out.add(late_figure("wake", fmt::format("{} p99, {}", name, where.name), put_, put_.median(), microseconds, "us",
                        where.at_most(5)));
    samples half;
    half.add(put_.median() / 2);
    out.add(time_figure("wake", fmt::format("{} async, {}", name, where.name), async_, half, microseconds, "us",
                        small ? where.at_most(1) : bound{}));
  }

 private:
  std::size_t next() { return next_source_ = (next_source_ + 1) % count_; }
  template <class Put>
  result<void> put(Put how) {
    const key_list key(6, next_key_++, 1);
    return (session_.*how)(key.all(), 0, std::nullopt, sources_.some(next(), 1)).status;
  }

  client::session& session_;
  std::uint64_t block_bytes_;
  std::size_t count_;
  memory_pieces sources_;
  std::vector<client::reserved_block> reserved_;
  std::uint64_t next_key_ = 0;
  std::size_t next_source_ = 0;
  samples copy_, put_, async_;
};

result<void> measure(const options& options, const writer_place& where, report& out) {
  auto other = ping_pong::start();
  if (!other) return std::unexpected(other.error());
  auto node = stage::open(options, capacity);
  if (!node) return std::unexpected(node.error());
  samples ping;
  for (const std::uint64_t bytes : {128 * KiB, 4 * KiB}) {
    auto session = node->attach("wake", bytes);
    if (!session) return std::unexpected(session.error());
    put_calls writing(**session, bytes);
    if (auto ready = writing.prepare(); !ready) return ready;
    wait_until_settled();
    samples barrier;
    const unsigned rounds = options.rounds != 0 ? options.rounds : default_rounds;
    for (unsigned round = 0; round <= rounds; ++round) {  // the first one only warms up
      if (auto go_on = check_interrupted(); !go_on) return go_on;
      if (auto ok = time_calls(ping, round != 0, calls, [&] { return other->call(); }); !ok) return ok;
      if (auto ok = time_calls(barrier, round != 0, calls, [&] { return (*session)->barrier(); }); !ok) return ok;
      if (auto ok = writing.run_round(round != 0); !ok) return ok;
    }
    if (bytes == 128 * KiB) {
      out.add(time_figure("wake", "barrier, " + where.name, barrier, ping, microseconds, "us", where.at_most(2)));
      out.add(late_figure("wake", "barrier p99, " + where.name, barrier, ping.median(), microseconds, "us",
                          where.at_most(15)));
    }
    writing.say(ping, where, out);
    if (auto cleared = (*session)->clear(); !cleared) return cleared;
  }
  return {};
}

}  // namespace

result<void> run(const options& options, report& out) {
  {
    const one_processor pinned;
    if (auto ok = measure(options, {"one core", true}, out); !ok) return ok;
  }
  return measure(options, {"any core"}, out);
}

}  // namespace cenote::bench::wake_bench
