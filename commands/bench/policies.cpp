// What a block access costs in the simulation of a policy, beside a pass with a hash table over the same identities:
// the same objects that order the tiers' blocks.
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <random>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "commands/bench/plain_loops.hpp"
#include "commands/bench/support.hpp"
#include "commands/bench/trace_lines.hpp"
#include "commands/replay/trace.hpp"
#include "core/unique_fd.hpp"
#include "simulation/simulation.hpp"
#include "simulation/stack_distances.hpp"
#include "tiers/eviction/automatic.hpp"
#include "tiers/eviction/registry.hpp"

namespace cenote::bench::policies_bench {

namespace {

using simulation::replay_order;
using simulation::trace;

constexpr std::uint32_t standard_capacity = 8'000;
constexpr std::array<std::uint32_t, 4> other_capacities{1'000, 2'000, 16'000, 64'000};
constexpr std::size_t accesses_made = 300'000;
constexpr std::size_t sessions_made = 400;
constexpr unsigned default_rounds = 20;
constexpr double nanoseconds = 1e9;

/// What an access may cost, in accesses to a hash table; nothing is promised of a policy that is not listed.
bound promise_of(std::string_view policy) {
  if (policy == "lru") return {bound::kind::ratio_at_most, 5};
  if (policy == "tblru") return {bound::kind::ratio_at_most, 10};
  return {};
}

struct timed_policy {
  std::string_view name;
  bound promise;
  std::uint32_t capacity = standard_capacity;
};

/// All of the registry, and `auto` at other capacities beside the policy that it starts with: the rest is its own cost,
/// which is larger in small pools.
std::vector<timed_policy> timed_policies() {
  std::vector<timed_policy> all;
  for (const eviction::policy_info& each : eviction::policies()) {
    if (each.use != eviction::policy_use::replays) all.push_back({each.name, promise_of(each.name)});
  }
  for (const std::uint32_t capacity : other_capacities) {
    for (const std::string_view name : {std::string_view("auto"), eviction::auto_options{}.start})
      all.push_back({name, {}, capacity});
  }
  return all;
}

/// Sessions that take turns, grow by some blocks each time and end at random; all begin with the same block.
trace make_trace() {
  std::mt19937_64 random(1);
  trace made;
  std::vector<std::vector<std::uint64_t>> sessions(sessions_made);
  std::uint64_t next = 1;
  for (std::uint64_t time_ms = 0; made.stream().size() < accesses_made; time_ms += 250) {
    auto& session = sessions[random() % sessions_made];
    if (session.empty() || random() % 4 == 0) session = {0};
    for (std::uint64_t more = random() % 24; more > 0; --more) session.push_back(next++);
    made.add(time_ms, session.size() * trace::tokens_per_block, session);
  }
  return made;
}

/// The least that any policy does: a block is found by its identity, and its last use is written down.
double time_hash_table(const trace& trace, std::span<const std::uint64_t> identities) {
  volatile std::uint64_t kept = 0;  // or nothing would be computed
  const stopwatch watch;
  kept = kept + count_repeats(identities, trace.distinct());
  return watch.seconds();
}

result<void> measure(const trace& trace, const timed_policy& which, unsigned rounds, report& out) {
  const auto identities = identities_of(trace);
  samples figure;
  samples limit;
  for (unsigned round = 0; round < rounds; ++round) {
    const stopwatch watch;
    const auto sums = simulation::simulate(trace, which.name, which.capacity, replay_order::forward);
    if (!sums) return std::unexpected(sums.error());
    figure.add(watch.seconds());
    limit.add(time_hash_table(trace, identities));
  }
  out.add(time_figure("policies", fmt::format("{}, {} blocks", which.name, which.capacity), figure, limit,
                      nanoseconds / static_cast<double>(trace.stream().size()), "ns/access", which.promise));
  return {};
}

/// A file of the trace that goes away with it.
class trace_file {
 public:
  static result<trace_file> write(const trace& trace) {
    trace_file made;
    const unique_fd fd(::mkstemp(made.path_.data()));
    if (fd.get() < 0) return fail_errno("make", made.path_);
    made.owned_ = true;
    if (auto written = write_lines(trace, made.path_); !written) return std::unexpected(written.error());
    return made;
  }

  trace_file(trace_file&& other) noexcept : path_(std::move(other.path_)), owned_(std::exchange(other.owned_, false)) {}
  trace_file(const trace_file&) = delete;
  trace_file& operator=(const trace_file&) = delete;
  trace_file& operator=(trace_file&&) = delete;
  ~trace_file() {
    if (owned_) ::unlink(path_.c_str());
  }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  trace_file() = default;

  std::string path_ = (std::filesystem::temp_directory_path() / "cenote-bench-XXXXXX").string();
  bool owned_ = false;
};

/// The reading of the file beside finding its line ends, LRU of all capacities in one pass beside a pass with a hash
/// table, and both beside both.
result<void> measure_one_pass(const trace& trace, const std::string& path, unsigned rounds, report& out) {
  const double scale = nanoseconds / static_cast<double>(trace.stream().size());
  const auto identities = identities_of(trace);
  samples pass;
  samples read_only;
  samples whole;
  samples lines;
  samples table;
  samples both;
  for (unsigned round = 0; round < rounds; ++round) {
    const stopwatch watch;
    const simulation::lru_curve curve(trace);
    pass.add(watch.seconds());
    const stopwatch reading;
    const auto read = read_trace_file(path, {.block_tokens = simulation::trace::tokens_per_block});
    if (!read) return std::unexpected(read.error());
    read_only.add(reading.seconds());
    const simulation::lru_curve again(read->requests);
    whole.add(reading.seconds());
    const stopwatch plain;
    const auto ends = count_lines(path);
    if (!ends) return std::unexpected(ends.error());
    lines.add(plain.seconds());
    table.add(time_hash_table(trace, identities));
    both.add(lines.last() + table.last());
  }
  constexpr bound in_the_loop{bound::kind::ratio_at_most, 4};
  constexpr bound with_reading{bound::kind::ratio_at_most, 6};
  constexpr bound reading_alone{bound::kind::ratio_at_most, 30};
  out.add(time_figure("policies", "lru, all capacities", pass, table, scale, "ns/access", in_the_loop));
  out.add(time_figure("policies", "lru, all capacities, read", whole, both, scale, "ns/access", with_reading));
  out.add(time_figure("policies", "reading the trace", read_only, lines, scale, "ns/access", reading_alone));
  return {};
}

}  // namespace

result<void> run(const options& options, report& out) {
  std::optional<trace_file> made;
  if (options.trace.empty()) {
    auto written = trace_file::write(make_trace());
    if (!written) return std::unexpected(written.error());
    made.emplace(std::move(*written));
  }
  const std::string path = made ? made->path() : options.trace;
  auto read = read_trace_file(path, {.block_tokens = simulation::trace::tokens_per_block});
  if (!read) return std::unexpected(read.error());
  const trace of = std::move(read->requests);
  const unsigned rounds = options.rounds != 0 ? options.rounds : default_rounds;
  if (auto done = measure_one_pass(of, path, rounds, out); !done) return done;
  for (const timed_policy& which : timed_policies()) {
    if (auto done = measure(of, which, rounds, out); !done) return done;
  }
  return {};
}

}  // namespace cenote::bench::policies_bench
