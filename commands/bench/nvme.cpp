// Our NVMe engine against fio, in turn on the same file.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "commands/bench/support.hpp"
#include "core/units.hpp"
#include "keeper/child_process.hpp"
#include "memory/segment.hpp"
#include "tiers/nvme/path_file.hpp"
#include "tiers/nvme/uring_engine.hpp"

namespace cenote::bench::nvme_bench {

namespace {

using nvme::io_kind;
using nvme::path_file;

constexpr double seconds_a_round = 1;
constexpr unsigned most_depth = 64;
constexpr std::uint64_t most_block = 8 * MiB;
constexpr unsigned promised_rounds = 6;
constexpr unsigned other_rounds = 2;

struct transfer_case {
  io_kind kind;
  std::uint64_t block;
  unsigned depth;

  [[nodiscard]] std::string name() const {
    const auto size = block >= MiB ? fmt::format("{} MiB", block / MiB) : fmt::format("{} KiB", block / KiB);
    return fmt::format("{} {} x {}", kind_name(), size, depth);
  }
  [[nodiscard]] std::string_view kind_name() const { return kind == io_kind::read ? "read" : "write"; }
  [[nodiscard]] bool promised() const { return block == 2 * MiB && depth == 16; }
};

/// What a GiB cost.
struct cost {
  double seconds = 0;
  double cpu_seconds = 0;
};

double process_cpu_seconds() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// --------------------------------------------------------------------------------------------- ours

/// Keeps a number of transfers under way, one after the other in the file.
class file_side {
 public:
  file_side(const path_file& file, std::uint64_t region) : file_(file), region_(region) {}

  result<void> open() {
    auto engine = nvme::uring_engine::create(file_, {.queue_depth = most_depth},
                                             [this](std::span<const nvme::io_completion> batch) { take(batch); });
    if (!engine) return std::unexpected(engine.error());
    engine_ = std::move(*engine);
    return {};
  }

  /// Shared memory, as slabs are. The other side uses the very same: how scattered its pages are decides more than
  /// who asks for the transfers.
  result<void> use_memory(std::uint64_t bytes) {
    if (pinned_) engine_->unregister_memory({memory_.data(), memory_.size()});
    pinned_ = false;
    auto mapped = memory::segment::create("cenote-bench", bytes);
    if (!mapped) return std::unexpected(mapped.error());
    memory_ = std::move(*mapped);
    memory_.populate(0, bytes, memory::access::read_write);
    pinned_ = engine_->register_memory({memory_.data(), bytes});
    return {};
  }

  /// How another process opens the memory.
  [[nodiscard]] std::string memory_path() const {
    return fmt::format("/proc/{}/fd/{}", ::getpid(), memory_.fd().get());
  }

  [[nodiscard]] bool pinned() const noexcept { return pinned_; }

  /// Every block of the file is written: reads of what was only reserved never reach the device.
  result<void> fill() {
    if (auto ok = use_memory(8 * most_block); !ok) return ok;
    const auto filled = run({io_kind::write, most_block, 8}, false, [this] { return offset_ + most_block <= region_; });
    return filled ? result<void>() : std::unexpected(filled.error());
  }

  result<cost> measure(const transfer_case& what, bool checksum) {
    const stopwatch time;
    return run(what, checksum, [time] { return time.seconds() < seconds_a_round; });
  }

 private:
  result<cost> run(const transfer_case& what, bool checksum, std::function<bool()> more) {
    const double cpu_before = process_cpu_seconds();
    const stopwatch time;
    std::vector<nvme::io_request> first;
    {
      const std::lock_guard lock(mutex_);
      more_ = std::move(more);
      bytes_ = offset_ = 0;
      error_ = 0;
      under_way_ = what.depth;
      requests_.clear();
      for (unsigned i = 0; i < what.depth; ++i) {
        requests_.push_back({.kind = what.kind,
                             .offset = 0,
                             .memory = {memory_.data() + i * what.block, what.block},
                             .tag = i,
                             .checksum = checksum});
        first.push_back(next(i));
      }
    }
    engine_->submit(first);
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [&] { return under_way_ == 0; });
    if (error_ != 0) return fail_errno(error_, what.kind_name(), file_.directory());
    const double amount = static_cast<double>(bytes_) / static_cast<double>(GiB);
    return cost{time.seconds() / amount, (process_cpu_seconds() - cpu_before) / amount};
  }

  /// Under the mutex: the request that the i-th buffer is used for next.
  nvme::io_request next(std::size_t i) {
    nvme::io_request& request = requests_[i];
    if (offset_ + request.memory.size() > region_) offset_ = 0;
    request.offset = path_file::data_offset + offset_;
    offset_ += request.memory.size();
    return request;
  }

  void take(std::span<const nvme::io_completion> batch) {
    again_.clear();
    {
      const std::lock_guard lock(mutex_);
      for (const auto& each : batch) {
        if (each.error != 0) error_ = each.error;
        bytes_ += requests_[each.tag].memory.size();
        if (error_ == 0 && more_()) {
          again_.push_back(next(each.tag));
        } else {
          --under_way_;
        }
      }
      if (under_way_ == 0) ended_.notify_one();
    }
    if (!again_.empty()) engine_->submit(again_);
  }

  const path_file& file_;
  std::uint64_t region_;
  memory::segment memory_;
  std::mutex mutex_;
  std::condition_variable ended_;
  std::function<bool()> more_;
  std::vector<nvme::io_request> requests_;
  std::vector<nvme::io_request> again_;  ///< the engine thread's own
  std::uint64_t offset_ = 0;             ///< from where blocks start
  std::uint64_t bytes_ = 0;
  unsigned under_way_ = 0;
  int error_ = 0;
  bool pinned_ = false;
  std::unique_ptr<nvme::uring_engine> engine_;  // last: ends first
};

// ---------------------------------------------------------------------------------------------- fio

class fio_side {
 public:
  fio_side(std::string program, std::string file, std::string output, std::uint64_t region)
      : program_(std::move(program)), file_(std::move(file)), output_(std::move(output)), region_(region) {}

  /// `memory`: where the transfers' memory can be opened; `pinned`: whether it may be registered.
  [[nodiscard]] result<cost> measure(const transfer_case& what, const std::string& memory, bool pinned) const {
    child_process::setup how;
    how.program = program_;
    how.command = {"fio",
                   "--name=limit",
                   "--thread",
                   "--ioengine=io_uring",
                   "--direct=1",
                   "--registerfiles",
                   "--fallocate=none",
                   "--scramble_buffers=0",
                   "--time_based",
                   fmt::format("--runtime={}", seconds_a_round),
                   fmt::format("--rw={}", what.kind_name()),
                   fmt::format("--bs={}", what.block),
                   fmt::format("--iodepth={}", what.depth),
                   "--filename=" + file_,
                   "--iomem=mmapshared:" + memory,
                   fmt::format("--offset={}", path_file::data_offset),
                   fmt::format("--size={}", region_),
                   "--output-format=json",
                   "--output=" + output_};
    if (pinned) how.command.emplace_back("--fixedbufs");
    how.die_with_parent = true;
    how.discard_output = true;
    if (auto ended = run_program(how); !ended) return std::unexpected(ended.error());
    return parse(what);
  }

 private:
  [[nodiscard]] result<cost> parse(const transfer_case& what) const {
    std::ifstream file(output_);
    const std::string text(std::istreambuf_iterator<char>(file), {});
    // Warnings may come first.
    const auto start = std::min(text.find('{'), text.size());
    const auto said = nlohmann::json::parse(text.substr(start), nullptr, false);
    const auto fail_to_read = [&] { return fail(error_code::malformed, "fio's report makes no sense: " + output_); };
    if (!said.is_object()) return fail_to_read();
    try {
      const auto& job = said.at("jobs").at(0);
      const auto& side = job.at(std::string(what.kind_name()));
      const double amount = side.at("io_bytes").get<double>() / static_cast<double>(GiB);
      const double seconds = side.at("runtime").get<double>() * 1e-3;
      if (amount <= 0 || seconds <= 0) return fail_to_read();
      const double percent = job.at("usr_cpu").get<double>() + job.at("sys_cpu").get<double>();
      return cost{seconds / amount, percent / 100 * seconds / amount};
    } catch (const nlohmann::json::exception&) {
      return fail_to_read();
    }
  }

  std::string program_;
  std::string file_;
  std::string output_;
  std::uint64_t region_;
};

// -------------------------------------------------------------------------------------------- cases

struct cost_samples {
  samples seconds;
  samples cpu;

  void add(const cost& one) {
    seconds.add(one.seconds);
    cpu.add(one.cpu_seconds);
  }
};

result<void> run_case(const transfer_case& what, unsigned rounds, file_side& ours, const fio_side& fio, report& out) {
  if (auto ok = ours.use_memory(what.depth * what.block); !ok) return ok;
  cost_samples figure;
  cost_samples hashed;
  cost_samples limit;
  const auto once = [&](cost_samples& into, auto&& measure) -> result<void> {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    const auto one = measure();
    if (one) into.add(*one);
    return one ? result<void>() : std::unexpected(one.error());
  };
  for (unsigned round = 0; round < rounds; ++round) {
    for (const bool first : {true, false}) {
      auto ok = first == (round % 2 == 0)
                    ? once(figure, [&] { return ours.measure(what, false); })
                    : once(limit, [&] { return fio.measure(what, ours.memory_path(), ours.pinned()); });
      if (!ok) return ok;
    }
    if (!what.promised()) continue;
    if (auto ok = once(hashed, [&] { return ours.measure(what, true); }); !ok) return ok;
  }
  const bound promise = what.promised() ? bound{bound::kind::ratio_at_least, 0.95} : bound{};
  const auto add = [&](const std::string& name, const cost_samples& mine, bound promised) {
    out.add(rate_figure("nvme", name, mine.seconds, limit.seconds, 1, "GiB/s", promised));
    if (what.depth == 16) out.add(time_figure("nvme", name + ", CPU", mine.cpu, limit.cpu, 1e3, "ms/GiB"));
  };
  add(what.name(), figure, promise);
  if (what.promised()) add(what.name() + ", checksums", hashed, {});
  return {};
}

}  // namespace

result<void> run(const options& options, report& out) {
  auto program = find_program("fio");
  if (!program) {
    return fail(error_code::unsupported, "this bench compares with fio, which is not installed (package fio)");
  }
  const auto bytes = parse_bytes(options.size);
  if (!bytes) return std::unexpected(bytes.error());
  if (*bytes < path_file::data_offset + most_depth * most_block) {
    return fail(error_code::invalid_argument, "--size: at least 1GiB makes sense");
  }
  auto directory = scratch_directory::make(options.path);
  if (!directory) return std::unexpected(directory.error());
  auto file = path_file::open({.directory = *directory / "path", .bytes = *bytes, .holder = "bench", .patience = {}});
  if (!file) return std::unexpected(file.error());
  if (!file->direct()) return fail(error_code::unsupported, "--path: this file system has no direct I/O");
  // Whole blocks of every size, so that both sides wrap at the same place.
  const std::uint64_t region = (file->bytes() - path_file::data_offset) / most_block * most_block;
  file_side ours(*file, region);
  if (auto ok = ours.open(); !ok) return ok;
  if (auto ok = ours.fill(); !ok) return ok;
  if (!ours.pinned()) fmt::print(stderr, "memory cannot be registered (RLIMIT_MEMLOCK): both sides do without\n");
  const fio_side fio(std::move(*program), *directory / "path/data", *directory / "fio.json", region);
  for (const auto kind : {io_kind::read, io_kind::write}) {
    for (const std::uint64_t block : {64 * KiB, 512 * KiB, 2 * MiB, 8 * MiB}) {
      for (const unsigned depth : {1U, 16U, 64U}) {
        const transfer_case what{kind, block, depth};
        const unsigned rounds = options.rounds != 0 ? options.rounds : what.promised() ? promised_rounds : other_rounds;
        if (auto ok = run_case(what, rounds, ours, fio, out); !ok) return ok;
      }
    }
  }
  return {};
}

}  // namespace cenote::bench::nvme_bench
