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
#include "memory/segment.hpp"

namespace cenote::bench {

namespace {

constexpr std::size_t batch_blocks = 64;
constexpr unsigned default_rounds = 20;
constexpr unsigned warm_ups = 4;  // until the memory that is used again and again was touched by all
constexpr std::uint64_t device_capacity = 512 * MiB;
constexpr std::uint64_t dram_capacity = std::uint64_t{1} * GiB;
constexpr auto patience = std::chrono::seconds(30);
constexpr bound moved{bound::kind::ratio_at_least, 0.85};

/// Copies between memory of the device and host memory as a tier has it.
class copy_limit {
 public:
  static result<copy_limit> make(const std::string& device_name, std::uint64_t bytes) {
    copy_limit made;
    auto device = device::open(device_name);
    if (!device) return std::unexpected(device.error());
    made.device_ = std::move(*device);
    auto stream = made.device_->make_stream();
    if (!stream) return std::unexpected(stream.error());
    made.stream_ = std::move(*stream);
    auto there = made.device_->make(bytes);
    if (!there) return std::unexpected(there.error());
    made.there_ = std::move(*there);
    auto here = memory::segment::create("cenote-bench", bytes);
    if (!here) return std::unexpected(here.error());
    here->populate(0, bytes, memory::access::read_write);
    made.here_ = std::move(*here);
    (void)made.device_->register_host({made.here_.data(), made.here_.size()});  // else it is staged, as a slab is then
    made.bytes_ = bytes;
    return made;
  }

  [[nodiscard]] result<void> run(bool to_device) {
    std::vector<copy_run> runs;
    for (std::uint64_t at = 0; at < bytes_; at += bytes_ / batch_blocks) {
      std::byte* const there = there_.mapping.get() + at;
      std::byte* const here = here_.data() + at;
      runs.push_back({to_device ? there : here, to_device ? here : there, bytes_ / batch_blocks});
    }
    if (auto copied = device_->copy(stream_, runs); !copied) return copied;
    auto event = device_->record(stream_);
    if (!event) return std::unexpected(event.error());
    return await(*device_, *event, patience);
  }

 private:
  std::unique_ptr<device> device_;
  stream_ref stream_;
  device_memory there_;
  memory::segment here_;
  std::uint64_t bytes_ = 0;
};

class tier_bench {
 public:
  tier_bench(client::session& on_device, client::session& in_dram, copy_limit& limit, std::uint64_t block_bytes)
      : device_(on_device), dram_(in_dram), limit_(limit), source_(batch_blocks, block_bytes) {}

  /// Of `round`: DRAM has its blocks, the device does not.
  result<void> promote(unsigned round, samples& figure) {
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
    return forget(keys);
  }

  /// The device has blocks that DRAM has not: from their commit until DRAM has all.
  result<void> write_down(unsigned round, samples& figure) {
    const key_list keys(32, std::uint64_t{round} * batch_blocks, batch_blocks);
    std::vector<client::reserved_block> blocks(batch_blocks);
    if (auto reserved = device_.reserve(keys.all(), 0, std::nullopt, blocks); !reserved) return reserved;
    const auto until = std::chrono::steady_clock::now() + patience;
    const stopwatch time;
    if (auto stored = device_.commit(blocks); !stored) return std::unexpected(stored.error());
    if (auto came = await_in_dram(keys, until); !came) return came;
    figure.add(time.seconds());
    return forget(keys);
  }

  template <class Figure>
  result<void> measure(const std::string& name, bool up, unsigned rounds, double gib, Figure&& figure, report& out) {
    samples value;
    samples limit;
    for (unsigned round = 0; round < warm_ups + rounds; ++round) {
      if (auto go_on = check_interrupted(); !go_on) return go_on;
      samples ignored;
      if (auto ran = figure(round, round < warm_ups ? ignored : value); !ran) return ran;
      const stopwatch time;
      if (auto copied = limit_.run(up); !copied) return copied;
      if (round >= warm_ups) limit.add(time.seconds());
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

  /// The batch is stored in its order. One key at a time is asked for, seldom: who looks takes from those who copy.
  result<void> await_in_dram(const key_list& keys, std::chrono::steady_clock::time_point until) {
    constexpr std::chrono::microseconds between_looks{150};
    for (std::uint8_t is_there = 0; is_there == 0;) {
      std::this_thread::sleep_for(between_looks);
      if (auto asked = dram_.exists(keys.some(batch_blocks - 1, 1), 0, {&is_there, 1}); !asked) return asked;
      if (std::chrono::steady_clock::now() > until) break;
    }
    const auto found = dram_.match_prefix(keys.all(), 0);
    if (!found) return std::unexpected(found.error());
    return check_all(found->resident, batch_blocks);
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
  auto limit = copy_limit::make(device_name, batch_blocks * block_bytes);
  if (!limit) return std::unexpected(limit.error());
  auto in_dram = at.attach("gpu-tier", block_bytes);
  if (!in_dram) return std::unexpected(in_dram.error());
  auto on_device = at.attach("gpu-tier", block_bytes, batch_blocks, device_name);
  if (!on_device) return std::unexpected(on_device.error());
  tier_bench bench(**on_device, **in_dram, *limit, block_bytes);
  const unsigned rounds = options.rounds != 0 ? options.rounds : options.quick ? 2 : default_rounds;
  const double gib = static_cast<double>(batch_blocks * block_bytes) / static_cast<double>(GiB);
  const auto up = [&](unsigned round, samples& to) { return bench.promote(round, to); };
  const auto down = [&](unsigned round, samples& to) { return bench.write_down(round, to); };
  if (auto done = bench.measure("DRAM to device, 64 x " + name, true, rounds, gib, up, out); !done) return done;
  if (auto done = bench.measure("device to DRAM, 64 x " + name, false, rounds, gib, down, out); !done) return done;
  return (*in_dram)->clear();
}

}  // namespace

result<void> run_gpu_tier(const options& options, report& out) {
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

}  // namespace cenote::bench
