#include "commands/bench/support.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "keeper/command_line.hpp"

namespace cenote::bench {

namespace {

constexpr std::size_t commit_batch = 512;
constexpr double settled_share = 0.02;  // of a processor
constexpr double settle_limit = 30;     // seconds
constexpr int look_pause = 100;         // ms, between looks whether the user asked to stop

// SplitMix64: distinct inputs, distinct outputs.
std::uint64_t mixed(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

}  // namespace

key_list::key_list(std::uint64_t tag, std::uint64_t first, std::size_t count)
    : bytes_(count * key_width), count_(count) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint64_t words[key_width / sizeof(std::uint64_t)] = {tag};
    for (std::size_t w = 1; w < std::size(words); ++w) words[w] = mixed((first + i) * std::size(words) + w);
    std::memcpy(bytes_.data() + i * key_width, words, key_width);
  }
}

memory_pieces::memory_pieces(std::size_t count, std::uint64_t bytes) : count_(count), bytes_(bytes) {
  void* memory = ::mmap(nullptr, count * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  all_ = {static_cast<std::byte*>(memory), unmapper{count * bytes}};
  for (std::uint64_t at = 0; at < count * bytes; at += sizeof at) {
    const std::uint64_t word = mixed(at);
    std::memcpy(all_.get() + at, &word, std::min<std::uint64_t>(sizeof word, count * bytes - at));
  }
}

void unmapper::operator()(std::byte* memory) const noexcept {
  ::munmap(memory, bytes);
}

result<scratch_directory> scratch_directory::make(const std::string& parent) {
  auto pattern = (std::filesystem::path(parent.empty() ? "." : parent) / "cenote-bench-XXXXXX").native();
  if (::mkdtemp(pattern.data()) == nullptr) return fail_errno("mkdtemp", pattern);
  return scratch_directory(std::move(pattern));
}

scratch_directory::~scratch_directory() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string scratch_directory::operator/(std::string_view name) const {
  return fmt::format("{}/{}", path_, name);
}

std::optional<std::string> find_program(std::string_view name) {
  std::string path = program_path(std::string(name));
  return path.empty() ? std::nullopt : std::optional(std::move(path));
}

result<process_end> run_to_end(const child_process::setup& setup) {
  auto running = child_process::start(setup);
  if (!running) return std::unexpected(running.error());
  while (true) {
    pollfd end{.fd = running->pidfd(), .events = POLLIN, .revents = 0};
    ::poll(&end, 1, look_pause);
    if (auto go_on = check_interrupted(); !go_on) return std::unexpected(go_on.error());
    if (const auto ended = running->ended()) return *ended;
  }
}

result<void> run_program(const child_process::setup& setup) {
  const auto ended = run_to_end(setup);
  if (!ended) return std::unexpected(ended.error());
  if (!ended->by_signal && ended->value == 0) return {};
  return fail(error_code::system, setup.command.front() + " ended with " + ended->describe());
}

double cpu_seconds(clockid_t clock) noexcept {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

double thread_cpu_seconds() noexcept {
  return cpu_seconds(CLOCK_THREAD_CPUTIME_ID);
}

result<stage> stage::open(const options& options, std::uint64_t capacity, const std::vector<std::string>& sets) {
  stage out;
  out.socket_ = options.socket;
  if (!options.socket.empty()) return out;
  auto node = private_node::start({.purpose = "bench", .dram = capacity, .sets = sets});
  if (!node) return std::unexpected(node.error());
  out.node_ = std::move(*node);
  out.socket_ = out.node_->socket();
  return out;
}

instance_spec spec_of(const std::string& name, std::uint64_t block_bytes) {
  instance_spec spec;
  // The process in the name: two benches at one node do not meet.
  spec.id = fmt::format("bench-{}-{}-{}", ::getpid(), name, block_bytes);
  spec.model = "bench";
  spec.dtype = "bytes";
  spec.layout = "flat";
  spec.tokens_per_block = 16;
  spec.groups = {{"default", {{"kv", block_bytes}}}};
  spec.hash_scheme = "bench";
  return spec;
}

result<client::session_ptr> stage::attach(const std::string& name, std::uint64_t block_bytes, std::uint32_t max_pins,
                                          const std::string& device) const {
  return client::session::attach({.spec = spec_of(name, block_bytes),
                                  .device = device,
                                  .socket = socket_,
                                  .token = {},
                                  .client_name = "cenote bench",
                                  .max_pins = max_pins,
                                  .deadline = std::chrono::seconds(20)});
}

result<void> commit_unwritten(client::session& session, key_batch keys) {
  std::vector<client::reserved_block> blocks(commit_batch);
  for (std::size_t done = 0; done < keys.count; done += commit_batch) {
    const std::size_t n = std::min(commit_batch, keys.count - done);
    const auto batch = std::span(blocks).first(n);
    const key_batch some{keys.data + done * keys.width, n, keys.width};
    if (auto reserved = session.reserve(some, 0, std::nullopt, batch); !reserved) return reserved;
    if (auto committed = session.commit(batch); !committed) return std::unexpected(committed.error());
    if (auto go_on = check_interrupted(); !go_on) return go_on;
  }
  return {};
}

void wait_until_settled() {
  const stopwatch time;
  double share = 1;
  while (share > settled_share && time.seconds() < settle_limit && !interrupted()) {
    const double before = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID);
    const stopwatch nap;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    share = (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - before) / nap.seconds();
  }
}

result<void> check_all(std::size_t found, std::size_t wanted) {
  if (found == wanted) return {};
  return fail(error_code::no_space,
              fmt::format("only {} of {} blocks are still there; the node needs more capacity for this bench, or has "
                          "other users who evict them",
                          found, wanted));
}

}  // namespace cenote::bench
