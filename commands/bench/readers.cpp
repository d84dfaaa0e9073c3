// Readers beside a writer that commits and evicts as fast as it can. Work a second of the reader's own processor time:
// on a machine with few cores, the writer and the node take the rest.
#include <fmt/format.h>

#include <atomic>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include "commands/bench/support.hpp"

namespace cenote::bench::readers_bench {

namespace {

using namespace std::chrono_literals;

constexpr unsigned default_rounds = 20;
constexpr auto window = 100ms;
constexpr std::size_t chain_keys = 1000;
constexpr std::size_t chains = 16;
constexpr std::uint64_t small_block = 4 * KiB;
constexpr std::uint64_t large_block = 512 * KiB;
constexpr std::size_t large_blocks = 64;
constexpr std::size_t writer_batch = 64;
constexpr std::uint64_t tier_bytes = 512 * MiB;
constexpr bound at_least_80{bound::kind::ratio_at_least, 0.8};

/// A thread that puts new blocks into a full tier while it is told to. The first failure ends it.
class writer {
 public:
  explicit writer(client::session& session) : session_(session), buffers_(writer_batch, small_block) {}
  writer(const writer&) = delete;
  writer& operator=(const writer&) = delete;
  ~writer() { stop(); }

  void start() {
    thread_ = std::thread([this] { run(); });
  }
  /// Returns when the writer does what it is told.
  void set_active(bool active) {
    wanted_.store(active);
    wanted_.notify_all();
    while (active_.load() != active && !failed_.load()) std::this_thread::sleep_for(100us);
  }
  void stop() {
    if (!thread_.joinable()) return;
    end_.store(true);
    set_active(true);
    thread_.join();
  }
  [[nodiscard]] std::uint64_t stored() const noexcept { return stored_.load(); }
  [[nodiscard]] std::optional<error> failure() const { return failed_.load() ? failure_ : std::nullopt; }

 private:
  void run() {
    while (!end_.load()) {
      if (!wanted_.load()) {
        active_.store(false);
        wanted_.wait(false);
        continue;
      }
      active_.store(true);
      const key_list keys(8, stored_.load(), writer_batch);
      const auto put = session_.put(keys.all(), 0, std::nullopt, buffers_.some(0, writer_batch));
      if (!put.status) {
        failure_ = put.status.error();
        failed_.store(true);
        return;
      }
      stored_.fetch_add(writer_batch);
    }
    active_.store(true);
  }

  client::session& session_;
  memory_pieces buffers_;
  std::thread thread_;
  std::atomic<bool> wanted_{false};
  std::atomic<bool> active_{false};
  std::atomic<bool> end_{false};
  std::atomic<bool> failed_{false};
  std::optional<error> failure_;
  std::atomic<std::uint64_t> stored_{0};
};

/// One unit of a reader's work; what it moved.
using read_step = std::function<result<double>()>;

/// Processor time that one unit takes, over a window.
result<double> cpu_per_unit(const read_step& step) {
  double units = 0;
  const double before = thread_cpu_seconds();
  const stopwatch time;
  while (time.seconds() < std::chrono::duration<double>(window).count()) {
    const auto moved = step();
    if (!moved) return std::unexpected(moved.error());
    units += *moved;
  }
  return (thread_cpu_seconds() - before) / units;
}

struct reader_case {
  std::string name;
  std::string unit;
  double scale;
  std::function<result<void>()> prepare;  ///< stores what is read: the writer evicts what is not
  read_step step;
};

result<void> measure(const reader_case& reader, writer& busy, unsigned rounds, report& out, samples& writer_time) {
  if (auto ready = reader.prepare(); !ready) return ready;
  samples beside;
  samples quiet;
  for (unsigned round = 0; round <= rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    for (const bool writing : {true, false}) {
      busy.set_active(writing);
      const std::uint64_t before = busy.stored();
      const stopwatch time;
      const auto cost = cpu_per_unit(reader.step);
      if (!cost) return std::unexpected(cost.error());
      if (const auto why = busy.failure()) return std::unexpected(*why);
      if (round == 0) continue;
      (writing ? beside : quiet).add(*cost);
      if (writing && busy.stored() != before) {
        writer_time.add(time.seconds() / static_cast<double>(busy.stored() - before));
      }
    }
  }
  busy.set_active(false);
  out.add(rate_figure("get", reader.name, beside, quiet, reader.scale, reader.unit, at_least_80));
  return {};
}

/// Blocks that the reader keeps alive by reading them, written once.
result<void> put_set(client::session& session, const key_list& keys, std::uint64_t block_bytes) {
  memory_pieces buffers(writer_batch, block_bytes);
  for (std::size_t i = 0; i < keys.size(); i += writer_batch) {
    const std::size_t n = std::min(writer_batch, keys.size() - i);
    if (auto put = session.put(keys.some(i, n), 0, std::nullopt, buffers.some(0, n)); !put.status) return put.status;
  }
  return {};
}

/// Pins and unpins chains of 1,000 keys, one after the other.
class chain_reader {
 public:
  chain_reader(client::session& session, const key_list& keys) : session_(&session), keys_(&keys), held_(chain_keys) {}

  result<double> operator()() {
    const auto chain = keys_->some(next_++ % chains * chain_keys, chain_keys);
    const auto held = session_->acquire(chain, 0, held_);
    if (!held) return std::unexpected(held.error());
    if (auto released = session_->release(std::span<const client::held_block>(held_).first(*held)); !released) {
      return std::unexpected(released.error());
    }
    if (auto whole = check_all(*held, chain_keys); !whole) return std::unexpected(whole.error());
    return static_cast<double>(chain_keys);
  }

 private:
  client::session* session_;
  const key_list* keys_;
  std::vector<client::held_block> held_;
  std::size_t next_ = 0;
};

/// Copies blocks out, one at a time.
class copy_reader {
 public:
  copy_reader(client::session& session, const key_list& keys, memory_pieces& buffers)
      : session_(&session), keys_(&keys), buffers_(&buffers) {}

  result<double> operator()() {
    const std::size_t at = next_++ % keys_->size();
    const auto copied = session_->get_into(keys_->some(at, 1), 0, std::nullopt, buffers_->some(at, 1));
    if (!copied) return std::unexpected(copied.error());
    if (auto whole = check_all(*copied, 1); !whole) return std::unexpected(whole.error());
    return static_cast<double>(large_block) / static_cast<double>(GiB);
  }

 private:
  client::session* session_;
  const key_list* keys_;
  memory_pieces* buffers_;
  std::size_t next_ = 0;
};

}  // namespace

result<void> run(const options& options, report& out) {
  auto where = stage::open(options, tier_bytes);
  if (!where) return std::unexpected(where.error());
  auto small_reader = where->attach("readers", small_block);
  if (!small_reader) return std::unexpected(small_reader.error());
  auto large_reader = where->attach("readers", large_block);
  if (!large_reader) return std::unexpected(large_reader.error());
  auto writing = where->attach("readers", small_block);
  if (!writing) return std::unexpected(writing.error());

  const key_list small_keys(7, 0, chains * chain_keys);
  const key_list large_keys(7, 0, large_blocks);
  memory_pieces buffers(large_blocks, large_block);
  chain_reader chain_step(**small_reader, small_keys);
  copy_reader copy_step(**large_reader, large_keys, buffers);

  writer busy(**writing);
  busy.start();
  const std::array cases{
      reader_case{"chains pinned beside a writer", "M keys/CPU-s", 1e-6,
                  [&] { return put_set(**small_reader, small_keys, small_block); }, [&] { return chain_step(); }},
      reader_case{"512 KiB copied beside a writer", "GiB/CPU-s", 1,
                  [&] { return put_set(**large_reader, large_keys, large_block); }, [&] { return copy_step(); }},
  };
  samples writer_time;
  const unsigned rounds = options.rounds != 0 ? options.rounds : default_rounds;
  for (const auto& each : cases) {
    if (auto ok = measure(each, busy, rounds, out, writer_time); !ok) return ok;
  }
  busy.stop();
  out.add(rate_figure("get", "the writer meanwhile", writer_time, {}, 1e-3, "K blocks/s"));
  if (options.socket.empty()) return {};
  if (auto cleared = (*small_reader)->clear(); !cleared) return cleared;
  return (*large_reader)->clear();
}

}  // namespace cenote::bench::readers_bench
