// What a GPU writes for a process that was killed: how long after its death bytes still arrive. Its figure decides
// `gpu.quarantine`.
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "commands/bench/support.hpp"
#include "core/unique_fd.hpp"
#include "device/device.hpp"

namespace cenote::bench::gpu_kill_bench {

namespace {

constexpr std::uint64_t block_bytes = 2 * MiB;
constexpr std::uint64_t page_bytes = 4096;
constexpr std::byte late{0xee};      // what the device writes
constexpr std::byte own{0x11};       // what the memory's next owner writes
constexpr double quarantine_s = 30;  // the default of gpu.quarantine

struct kill_amounts {
  unsigned rounds;
  std::uint64_t blocks;
  unsigned batches;  // of copies into all blocks, queued before the kill
  std::chrono::milliseconds watched;
};
constexpr kill_amounts full{100, 64, 32, std::chrono::milliseconds(1000)};
constexpr kill_amounts quick{2, 4, 2, std::chrono::milliseconds(50)};

/// Blocks that two processes share, and one page by which the engine says how far it is.
class shared_blocks {
 public:
  enum class progress : int { begun, queued, failed };

  explicit shared_blocks(std::uint64_t bytes) : bytes_(bytes) {
    void* at =
        ::mmap(nullptr, bytes + page_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    memory_ = {static_cast<std::byte*>(at), {bytes + page_bytes}};
    state_ = new (memory_.get() + bytes) std::atomic<progress>(progress::begun);
  }
  [[nodiscard]] std::span<std::byte> blocks() const noexcept { return {memory_.get(), bytes_}; }
  [[nodiscard]] std::atomic<progress>& state() const noexcept { return *state_; }

 private:
  std::uint64_t bytes_;
  std::unique_ptr<std::byte, unmapper> memory_;
  std::atomic<progress>* state_ = nullptr;
};

/// The engine: queues copies from its device into the blocks, says so, and waits to be killed.
result<void> queue_copies(const std::string& which, const kill_amounts& of, const shared_blocks& shared) {
  auto opened = device::open(which);
  if (!opened) return std::unexpected(opened.error());
  device& on = **opened;
  (void)on.register_host(shared.blocks());  // refused: the driver's stage is as good a writer
  auto memory = on.make(block_bytes);
  if (!memory) return std::unexpected(memory.error());
  auto stream = on.make_stream();
  if (!stream) return std::unexpected(stream.error());
  const std::vector<std::byte> pattern(block_bytes, late);
  const copy_run fill{memory->span().data(), pattern.data(), block_bytes};
  if (auto done = on.copy(*stream, {&fill, 1}); !done) return done;
  const auto filled = on.record(*stream);
  if (!filled) return std::unexpected(filled.error());
  if (auto done = await(on, *filled, std::chrono::seconds(30)); !done) return done;
  std::vector<copy_run> runs;
  for (std::uint64_t i = 0; i < of.blocks; ++i) {
    runs.push_back({shared.blocks().data() + i * block_bytes, memory->span().data(), block_bytes});
  }
  for (unsigned batch = 0; batch < of.batches; ++batch) {
    if (auto done = on.copy(*stream, runs); !done) return done;
  }
  shared.state().store(shared_blocks::progress::queued);
  for (;;) ::pause();
}

[[noreturn]] void be_engine(const std::string& which, const kill_amounts& of, const shared_blocks& shared) {
  if (const auto done = queue_copies(which, of, shared); !done) {
    const std::string why = done.error().describe() + "\n";
    (void)!::write(STDERR_FILENO, why.data(), why.size());
  }
  shared.state().store(shared_blocks::progress::failed);
  ::_exit(1);
}

/// Kills the engine somewhere in its copies; returns when its death is seen as the node sees it.
result<void> kill_engine(pid_t engine, const shared_blocks& shared, std::mt19937& chance) {
  const unique_fd death(static_cast<int>(::syscall(SYS_pidfd_open, engine, 0)));
  if (!death) return fail_errno("pidfd_open");
  while (shared.state().load() == shared_blocks::progress::begun) {
    pollfd dead{death.get(), POLLIN, 0};
    if (::poll(&dead, 1, 1) > 0) break;
  }
  if (shared.state().load() != shared_blocks::progress::queued) {
    return fail(error_code::system, "the engine's process could not use the device");
  }
  std::this_thread::sleep_for(std::chrono::microseconds(chance() % 5000));
  ::kill(engine, SIGKILL);
  pollfd dead{death.get(), POLLIN, 0};
  if (::poll(&dead, 1, 60'000) != 1) return fail(error_code::deadline_exceeded, "a killed process does not die");
  return {};
}

/// Gives the blocks to a new owner and watches them: seconds from the death to the last foreign byte, 0 without one.
double last_foreign_byte(const kill_amounts& of, const shared_blocks& shared) {
  const stopwatch since_death;
  const auto blocks = shared.blocks();
  std::memset(blocks.data(), static_cast<int>(own), blocks.size());
  double last = 0;
  do {
    // A copy writes whole lines: one byte of each 64 is enough.
    for (std::uint64_t at = 0; at < blocks.size(); at += 64) {
      auto& seen = *static_cast<volatile std::byte*>(blocks.data() + at);
      if (seen == own) continue;
      last = since_death.seconds();
      seen = own;
    }
  } while (since_death.seconds() - last < std::chrono::duration<double>(of.watched).count());
  return last;
}

result<double> one_round(const std::string& which, const kill_amounts& of, std::mt19937& chance) {
  const shared_blocks shared(of.blocks * block_bytes);
  const pid_t engine = ::fork();
  if (engine < 0) return fail_errno("fork");
  if (engine == 0) be_engine(which, of, shared);
  const auto killed = kill_engine(engine, shared, chance);
  if (!killed) ::kill(engine, SIGKILL);
  const double last = killed ? last_foreign_byte(of, shared) : 0;
  ::waitpid(engine, nullptr, 0);
  if (!killed) return std::unexpected(killed.error());
  return last;
}

}  // namespace

result<void> run(const options& options, report& out) {
  // Opened by each engine's process only: a device does not survive a fork.
  const std::string which = options.device.empty() ? "cuda:0" : options.device;
  const bool is_gpu = which.starts_with("cuda:");
  kill_amounts of = options.quick ? quick : full;
  if (options.rounds != 0) of.rounds = options.rounds;
  out.say(is_gpu
              ? "engines are killed while " + which + " writes for them\n"
              : "engines are killed while a simulated device writes for them: its threads die with them, so this says "
                "nothing of a GPU\n");
  std::mt19937 chance(1);  // the same moments in each run
  samples last;
  double longest = 0;
  for (unsigned round = 0; round < of.rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    const auto taken = one_round(which, of, chance);
    if (!taken) return std::unexpected(taken.error());
    last.add(*taken);
    longest = std::max(longest, *taken);
  }
  figure row{.bench = is_gpu ? "gpu_kill" : "gpu_kill, simulated",
             .name = std::to_string(of.rounds) + " killed engines: last byte after a death, beside gpu.quarantine",
             .value = longest * 1e3,
             .unit = "ms",
             .limit = quarantine_s * 1e3,
             .low = last.quantile(0.1) * 1e3,
             .high = last.quantile(0.9) * 1e3,
             .promise = {bound::kind::ratio_at_most, 0.5}};
  row.measured = is_gpu;
  out.add(std::move(row));
  return {};
}

}  // namespace cenote::bench::gpu_kill_bench
