// The tier of device memory: blocks from DRAM to a device and back, beside one copy of as many pieces by the device.
#include <fmt/format.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "commands/bench/support.hpp"
#include "commands/common.hpp"
#include "commands/node_status.hpp"
#include "device/device.hpp"

namespace cenote::bench::gpu_tier_bench {

namespace {

constexpr std::size_t batch_blocks = 64;
constexpr unsigned default_rounds = 20;
constexpr unsigned warm_ups = 4;  // until the memory that is used again and again was touched by all
constexpr std::uint64_t device_capacity = 512 * MiB;
constexpr std::uint64_t dram_capacity = std::uint64_t{1} * GiB;
constexpr auto patience = std::chrono::seconds(30);
constexpr bound moved{bound::kind::ratio_at_least, 0.85};

/// Copies the very blocks that the node has copied, by the same device: other memory may be faster or slower by a
/// third.
class copy_limit {
 public:
  /// Sessions that see the blocks on the device and in DRAM. Those of DRAM are registered in the background.
  static result<copy_limit> make(client::session& on_device, client::session& in_dram) {
    auto stream = on_device.home()->make_stream();
    if (!stream) return std::unexpected(stream.error());
    if (auto uses = in_dram.use_device(on_device.home()); !uses) return std::unexpected(uses.error());
    return copy_limit(on_device, in_dram, std::move(*stream));
  }

  /// All of them are on both sides.
  result<void> run(const key_list& keys, bool to_device, samples& figure) {
    std::vector<client::held_block> there(keys.size());
    std::vector<client::held_block> here(keys.size());
    const auto held_there = device_->acquire(keys.all(), 0, there);
    if (!held_there) return std::unexpected(held_there.error());
    const auto held_here = dram_->acquire(keys.all(), 0, here);
    if (!held_here) return std::unexpected(held_here.error());
    if (auto whole = check_all(std::min(*held_there, *held_here), keys.size()); !whole) return whole;
    std::vector<copy_run> runs;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto& [from, to] = to_device ? std::pair(here[i], there[i]) : std::pair(there[i], here[i]);
      runs.push_back({writable(to), from.data, from.bytes});
    }
    const stopwatch time;
    if (auto copied = copy(runs); !copied) return copied;
    figure.add(time.seconds());
    if (auto released = device_->release(there); !released) return released;
    return dram_->release(here);
  }

 private:
  copy_limit(client::session& on_device, client::session& in_dram, stream_ref stream)
      : device_(&on_device), dram_(&in_dram), stream_(std::move(stream)) {}

  /// They get the bytes that they have.
  static std::byte* writable(const client::held_block& block) { return const_cast<std::byte*>(block.data); }

  result<void> copy(std::span<const copy_run> runs) {
    device& by = *device_->home();
    if (auto copied = by.copy(stream_, runs); !copied) return copied;
    const auto event = by.record(stream_);
    if (!event) return std::unexpected(event.error());
    return await(by, *event, patience);
  }

  client::session* device_;
  client::session* dram_;
  stream_ref stream_;
};

class tier_bench {
 public:
  tier_bench(client::session& on_device, client::session& in_dram, copy_limit& limit, std::uint64_t block_bytes)
      : device_(on_device), dram_(in_dram), limit_(limit), source_(batch_blocks, block_bytes) {}

  /// Of `round`: DRAM has its blocks, the device does not.
  result<void> promote(unsigned round, samples& figure, samples& limit) {
    const key_list keys(31, std::uint64_t{round} * batch_blocks, batch_blocks);
    if (auto put = dram_.put(keys.all(), 0, std::nullopt, source_.some(0, batch_blocks)); !put.status)
      return put.status;
    client::prefetch_options options;
    options.policy = memory::prefetch_policy::wait_complete;
    options.prefill_rate = 0;
    options.threshold_tokens = 0;
    const stopwatch time;
    auto coming = device_.prefetch(keys.all(), 0, options);
    if (!coming) return std::unexpected(coming.error());
    const auto ended = device_.wait(*coming, std::chrono::steady_clock::now() + patience);
    figure.add(time.seconds());
    if (!ended) return std::unexpected(ended.error());
    device_.drop(*coming);
    if (auto whole = check_all(coming->length, batch_blocks); !whole) return whole;
    if (auto copied = limit_.run(keys, true, limit); !copied) return copied;
    return forget(keys);
  }

  /// The device has blocks that DRAM has not: from their commit until DRAM has all.
  result<void> write_down(unsigned round, samples& figure, samples& limit) {
    const key_list keys(32, std::uint64_t{round} * batch_blocks, batch_blocks);
    std::vector<client::reserved_block> blocks(batch_blocks);
    if (auto reserved = device_.reserve(keys.all(), 0, std::nullopt, blocks); !reserved) return reserved;
    const auto until = std::chrono::steady_clock::now() + patience;
    const stopwatch time;
    if (auto stored = device_.commit(blocks); !stored) return std::unexpected(stored.error());
    if (auto came = await_in_dram(keys, until); !came) return came;
    figure.add(time.seconds());
    if (auto copied = limit_.run(keys, false, limit); !copied) return copied;
    return forget(keys);
  }

  template <class Figure>
  result<void> measure(const std::string& name, unsigned rounds, double gib, Figure&& figure, report& out) {
    samples value;
    samples limit;
    for (unsigned round = 0; round < warm_ups + rounds; ++round) {
      if (auto go_on = check_interrupted(); !go_on) return go_on;
      samples ignored;
      const bool counts = round >= warm_ups;
      if (auto ran = figure(round, counts ? value : ignored, counts ? limit : ignored); !ran) return ran;
    }
    out.add(rate_figure("gpu_tier", name, value, limit, gib, "GiB/s", moved));
    return {};
  }

 private:
  /// On both sides: the next round's blocks take the same memory.
  result<void> forget(const key_list& keys) {
    const auto removed = dram_.remove(keys.all(), 0);
    return removed ? result<void>() : std::unexpected(removed.error());
  }

  /// Most batches are stored in their order. So the last key is asked for, seldom, and then all of them: whoever looks
  /// takes from those who copy.
  result<void> await_in_dram(const key_list& keys, std::chrono::steady_clock::time_point until) {
    constexpr std::chrono::microseconds between_looks{150};
    for (;;) {
      std::this_thread::sleep_for(between_looks);
      std::uint8_t is_there = 0;
      if (auto asked = dram_.exists(keys.some(batch_blocks - 1, 1), 0, {&is_there, 1}); !asked) return asked;
      const bool is_late = std::chrono::steady_clock::now() > until;
      if (is_there == 0 && !is_late) continue;
      const auto found = dram_.match_prefix(keys.all(), 0);
      if (!found) return std::unexpected(found.error());
      if (found->resident == batch_blocks || is_late) return check_all(found->resident, batch_blocks);
    }
  }

  client::session& device_;
  client::session& dram_;
  copy_limit& limit_;
  memory_pieces source_;
};

/// DRAM's pages, as those of the device, are touched before anything is timed.
result<void> wait_until_populated(const std::string& socket) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (std::chrono::steady_clock::now() < until) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    const auto status = ask(socket, {{"command", "status"}});
    if (!status) return std::unexpected(status.error());
    if (text_of(at_path(*status, "dram.populate"), "state") == "done") return {};
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return fail(error_code::deadline_exceeded, "the node's memory is not touched yet; the bench needs 4 GiB of it");
}

result<void> run_size(const stage& at, const options& options, const std::string& device_name,
                      std::uint64_t block_bytes, report& out) {
  const std::string name = fmt::format("{} MiB", block_bytes / MiB);
  auto in_dram = at.attach("gpu-tier", block_bytes);
  if (!in_dram) return std::unexpected(in_dram.error());
  auto on_device = at.attach("gpu-tier", block_bytes, batch_blocks, device_name);
  if (!on_device) return std::unexpected(on_device.error());
  auto limit = copy_limit::make(**on_device, **in_dram);
  if (!limit) return std::unexpected(limit.error());
  tier_bench bench(**on_device, **in_dram, *limit, block_bytes);
  const unsigned rounds = options.rounds != 0 ? options.rounds : options.quick ? 2 : default_rounds;
  const double gib = static_cast<double>(batch_blocks * block_bytes) / static_cast<double>(GiB);
  const auto up = [&](unsigned round, samples& to, samples& of_copy) { return bench.promote(round, to, of_copy); };
  const auto down = [&](unsigned round, samples& to, samples& of_copy) { return bench.write_down(round, to, of_copy); };
  if (auto done = bench.measure("DRAM to device, 64 x " + name, rounds, gib, up, out); !done) return done;
  if (auto done = bench.measure("device to DRAM, 64 x " + name, rounds, gib, down, out); !done) return done;
  return (*in_dram)->clear();
}

}  // namespace

result<void> run(const options& options, report& out) {
  const std::string device_name = options.device.empty() ? "sim:0" : options.device;
  for (const std::uint64_t block_bytes : {2 * MiB, MiB}) {
    auto at = stage::open(options, dram_capacity,
                          {fmt::format("gpu.devices=[\"{}\"]", device_name),
                           fmt::format("gpu.capacity={}", device_capacity), "prefetch.assumed_tokens_per_s=0"});
    if (!at) return std::unexpected(at.error());
    if (auto ready = wait_until_populated(at->socket()); !ready) return ready;
    if (auto done = run_size(*at, options, device_name, block_bytes, out); !done) return done;
  }
  return {};
}

}  // namespace cenote::bench::gpu_tier_bench
