// Copying reads and puts, against memcpy between the same memories.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "commands/bench/support.hpp"

namespace cenote::bench::copy_bench {

namespace {

constexpr std::size_t batch_blocks = 64;
constexpr std::uint64_t set_bytes = 256 * MiB;    // of blocks that are cycled through: far more than any cache
constexpr std::uint64_t beside_bytes = 96 * MiB;  // of memory beside the blocks: more than caches hold
constexpr unsigned default_rounds = 40;
constexpr std::size_t singles = 16;  // one-block calls a round
constexpr double microseconds = 1e6;
constexpr bound late{bound::kind::ratio_at_most, 5};  // the 99th percentile of one-block calls, beside their median

std::string size_text(std::uint64_t bytes) {
  return bytes >= MiB ? fmt::format("{} MiB", bytes / MiB) : fmt::format("{} KiB", bytes / KiB);
}

double in_gib(std::uint64_t bytes) {
  return static_cast<double>(bytes) / static_cast<double>(GiB);
}

/// Blocks of memory that a bench copies from or to: at least a batch.
std::size_t beside(std::uint64_t block_bytes) {
  return std::max<std::size_t>(batch_blocks, beside_bytes / block_bytes);
}

unsigned rounds_of(const options& options) {
  return options.rounds != 0 ? options.rounds : default_rounds;
}

/// Runs figure and limit alternately, the order changing from round to round; round 0 only warms up. Each takes the
/// samples and whether they count.
template <class Figure, class Limit>
result<void> alternate(unsigned rounds, Figure&& figure, Limit&& limit) {
  for (unsigned round = 0; round <= rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    for (const bool first : {true, false}) {
      const bool counts = round != 0;
      auto ok = first == (round % 2 == 0) ? figure(counts) : limit(counts);
      if (!ok) return ok;
    }
  }
  return {};
}

/// Places that are gone through again and again.
class cycle {
 public:
  explicit cycle(std::size_t count, std::size_t start = 0) : count_(count), next_(start) {}
  /// The first of `n` neighbours.
  std::size_t take(std::size_t n) {
    if (next_ + n > count_) next_ = 0;
    return std::exchange(next_, next_ + n);
  }

 private:
  std::size_t count_;
  std::size_t next_;
};

// ---------------------------------------------------------------------------------------------- get

class get_bench {
 public:
  get_bench(client::session& session, std::uint64_t block_bytes)
      : session_(session),
        block_bytes_(block_bytes),
        blocks_(set_bytes / block_bytes),
        keys_(4, 0, blocks_),
        buffers_(beside(block_bytes), block_bytes),
        held_(blocks_),
        read_next_(blocks_),
        copy_next_(blocks_, blocks_ / 2) {}

  result<void> prepare() {
    for (std::size_t i = 0; i < blocks_; i += batch_blocks) {
      if (auto put = session_.put(keys_.some(i, batch_blocks), 0, std::nullopt, buffers_.some(0, batch_blocks));
          !put.status) {
        return put.status;
      }
    }
    // Pinned all the time: the limit copies from where the blocks are.
    const auto held = session_.acquire(keys_.all(), 0, held_);
    if (!held) return std::unexpected(held.error());
    wait_until_settled();
    return check_all(*held, blocks_);
  }

  result<void> finish() {
    if (auto released = session_.release(held_); !released) return released;
    return session_.clear();
  }

  /// `n` blocks a call, `calls` calls a round.
  result<void> measure(const std::string& name, std::size_t n, std::size_t calls, unsigned rounds, bound promise,
                       report& out) {
    samples figure;
    samples limit;
    const auto get = [&](bool counts) -> result<void> {
      for (std::size_t call = 0; call < calls; ++call) {
        const std::size_t at = read_next_.take(n);
        const std::size_t to = target_next_.take(n);
        const stopwatch time;
        const auto copied = session_.get_into(keys_.some(at, n), 0, std::nullopt, buffers_.some(to, n));
        if (counts) figure.add(time.seconds());
        if (!copied) return std::unexpected(copied.error());
        if (auto whole = check_all(*copied, n); !whole) return whole;
      }
      return {};
    };
    const auto copy = [&](bool counts) -> result<void> {
      for (std::size_t call = 0; call < calls; ++call) {
        const std::size_t at = copy_next_.take(n);
        const std::size_t to = target_next_.take(n);
        const stopwatch time;
        for (std::size_t i = 0; i < n; ++i) std::memcpy(buffers_.piece(to + i), held_[at + i].data, block_bytes_);
        if (counts) limit.add(time.seconds());
      }
      return {};
    };
    if (auto timed = alternate(rounds, get, copy); !timed) return timed;
    out.add(rate_figure("get", name, figure, limit, in_gib(n * block_bytes_), "GiB/s", promise));
    if (n == 1) out.add(late_figure("get", name + " p99", figure, figure.median(), microseconds, "us", late));
    return {};
  }

 private:
  client::session& session_;
  std::uint64_t block_bytes_;
  std::size_t blocks_;
  key_list keys_;
  memory_pieces buffers_;
  std::vector<client::held_block> held_;
  cycle read_next_;
  cycle copy_next_;
  cycle target_next_{buffers_.count()};
};

// ---------------------------------------------------------------------------------------------- put

class put_bench {
 public:
  put_bench(client::session& session, std::uint64_t block_bytes)
      : session_(session),
        block_bytes_(block_bytes),
        blocks_(set_bytes / block_bytes),
        buffers_(beside(block_bytes), block_bytes),
        reserved_(beside_bytes / block_bytes),
        source_next_(buffers_.count()),
        copy_next_(reserved_.size()) {}

  /// The limit copies into blank blocks that nobody else has.
  result<void> prepare() {
    const key_list keys(5, 0, reserved_.size());
    if (auto reserved = session_.reserve(keys.all(), 0, std::nullopt, reserved_); !reserved) return reserved;
    for (const auto& each : reserved_) std::memcpy(each.data, buffers_.piece(0), block_bytes_);
    auto filled = fill();
    wait_until_settled();
    return filled;
  }

  result<void> finish() {
    if (auto released = session_.release(reserved_); !released) return released;
    return session_.clear();
  }

  /// `n` blocks a call. `evicting`: nothing is removed, the tier is full and each block takes another one's place; else
  /// keys are removed outside the clock before the tier fills up.
  result<void> measure(const std::string& name, std::size_t n, std::size_t calls, bool evicting, unsigned rounds,
                       bound promise, report& out) {
    samples figure;
    samples limit;
    const auto put = [&](bool counts) -> result<void> {
      for (std::size_t call = 0; call < calls; ++call) {
        const key_list keys(6, next_key_, n);
        const auto source = buffers_.some(source_next_.take(n), n);
        const stopwatch time;
        const auto stored = session_.put(keys.all(), 0, std::nullopt, source);
        if (counts) figure.add(time.seconds());
        if (!stored.status) return stored.status;
        if (auto whole = check_all(stored.stored, n); !whole) return whole;
        next_key_ += n;
        if (!evicting && next_key_ - first_live_ >= blocks_) {
          if (auto removed = remove_all(); !removed) return removed;
        }
      }
      return {};
    };
    const auto copy = [&](bool counts) -> result<void> {
      for (std::size_t call = 0; call < calls; ++call) {
        const std::size_t from = source_next_.take(n);
        const std::size_t to = copy_next_.take(n);
        const stopwatch time;
        for (std::size_t i = 0; i < n; ++i) {
          std::memcpy(reserved_[(to + i) % reserved_.size()].data, buffers_.piece(from + i), block_bytes_);
        }
        if (counts) limit.add(time.seconds());
      }
      return {};
    };
    if (auto ready = evicting ? fill() : remove_all(); !ready) return ready;
    if (auto timed = alternate(rounds, put, copy); !timed) return timed;
    out.add(rate_figure("put", name, figure, limit, in_gib(n * block_bytes_), "GiB/s", promise));
    if (n == 1) out.add(late_figure("put", name + " p99", figure, figure.median(), microseconds, "us", late));
    return {};
  }

 private:
  /// Writes every block of the tier once, so that page faults are over; leaves the tier full.
  result<void> fill() {
    for (std::size_t i = 0; i < 2 * blocks_; i += batch_blocks, next_key_ += batch_blocks) {
      const key_list keys(6, next_key_, batch_blocks);
      if (auto put = session_.put(keys.all(), 0, std::nullopt, buffers_.some(0, batch_blocks)); !put.status) {
        return put.status;
      }
    }
    return {};
  }

  result<void> remove_all() {
    const key_list live(6, first_live_, next_key_ - first_live_);
    first_live_ = next_key_;
    const auto removed = session_.remove(live.all(), 0);
    return removed ? result<void>() : std::unexpected(removed.error());
  }

  client::session& session_;
  std::uint64_t block_bytes_;
  std::size_t blocks_;
  memory_pieces buffers_;
  std::vector<client::reserved_block> reserved_;
  cycle source_next_;
  cycle copy_next_;
  std::uint64_t next_key_ = 0;
  std::uint64_t first_live_ = 0;
};

}  // namespace

result<void> run_get(const options& options, report& out) {
  constexpr bound at_least_95{bound::kind::ratio_at_least, 0.95};
  for (const std::uint64_t bytes : {2 * MiB, 512 * KiB, 128 * KiB}) {
    auto where = stage::open(options, set_bytes + set_bytes / 4);
    if (!where) return std::unexpected(where.error());
    auto session = where->attach("get", bytes);
    if (!session) return std::unexpected(session.error());
    get_bench bench(**session, bytes);
    if (auto ready = bench.prepare(); !ready) return ready;
    const auto promise = bytes == 2 * MiB ? at_least_95 : bound{};
    const auto title = size_text(bytes);
    const auto batch = fmt::format("{} x {}", title, batch_blocks);
    if (auto ok = bench.measure(title + ", one", 1, singles, rounds_of(options), promise, out); !ok) return ok;
    if (auto ok = bench.measure(batch, batch_blocks, 1, rounds_of(options), promise, out); !ok) return ok;
    if (auto ended = bench.finish(); !ended) return ended;
  }
  return readers_bench::run(options, out);
}

result<void> run_put(const options& options, report& out) {
  struct put_case {
    std::uint64_t bytes;
    double promised;  // of a batch, and of a large block alone
  };
  for (const auto [bytes, promised] : {put_case{2 * MiB, 0.9}, put_case{128 * KiB, 0.85}}) {
    auto where = stage::open(options, 2 * set_bytes + set_bytes / 4);
    if (!where) return std::unexpected(where.error());
    auto session = where->attach("put", bytes);
    if (!session) return std::unexpected(session.error());
    put_bench bench(**session, bytes);
    if (auto ready = bench.prepare(); !ready) return ready;
    const auto title = size_text(bytes);
    const bound promise{bound::kind::ratio_at_least, promised};
    const auto batch = fmt::format("{} x {}", title, batch_blocks);
    const unsigned rounds = rounds_of(options);
    if (auto ok = bench.measure(title + ", one", 1, singles, false, rounds, bytes < MiB ? bound{} : promise, out); !ok)
      return ok;
    if (auto ok = bench.measure(batch, batch_blocks, 1, false, rounds, promise, out); !ok) return ok;
    if (auto ok = bench.measure(batch + ", evicting", batch_blocks, 1, true, rounds, {}, out); !ok) return ok;
    if (auto ended = bench.finish(); !ended) return ended;
  }
  return {};
}

}  // namespace cenote::bench::copy_bench
