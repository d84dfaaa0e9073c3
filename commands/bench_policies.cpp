// What a block access costs in the simulation of a policy: the same objects that order the tiers' blocks.
#include <fmt/format.h>

#include <array>
#include <random>

#include "commands/bench_support.hpp"
#include "commands/replay_trace.hpp"
#include "tiers/eviction/simulation.hpp"
#include "tiers/eviction/stack_distances.hpp"

namespace cenote::bench {

namespace {

using eviction::replay_order;
using eviction::trace;

constexpr std::uint32_t standard_capacity = 8'000;
constexpr std::uint32_t medium_capacity = 16'000;
constexpr std::uint32_t large_capacity = 64'000;
constexpr std::size_t accesses_made = 300'000;
constexpr std::size_t sessions_made = 400;
constexpr unsigned default_rounds = 20;
constexpr double nanoseconds = 1e9;

struct timed_policy {
  std::string_view name;
  bound promise;
  std::uint32_t capacity = standard_capacity;
};
constexpr std::array timed_policies{
    timed_policy{"lru", {bound::kind::value_at_most, 100}},    // 10 M accesses/s
    timed_policy{"tblru", {bound::kind::value_at_most, 200}},  // 5 M accesses/s
    timed_policy{"s3fifo", {}},
    timed_policy{"arc", {}},
    timed_policy{"mq", {}},
    timed_policy{"auto", {}},
    timed_policy{"auto", {}, medium_capacity},
    timed_policy{"tblru", {}, medium_capacity},  // which `auto` runs: the rest is its own
    timed_policy{"auto", {}, large_capacity},
    timed_policy{"tblru", {}, large_capacity}};

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

/// The least that any policy does: one write per access to the place of its block.
double time_bare_loop(const trace& of, std::vector<std::uint64_t>& last) {
  const stopwatch watch;
  std::uint64_t position = 0;
  for (const std::uint32_t block : of.stream()) last[block] = ++position;
  return watch.seconds();
}

result<void> measure(const trace& of, const timed_policy& which, unsigned rounds, report& out) {
  std::vector<std::uint64_t> last(of.distinct());
  samples figure;
  samples limit;
  for (unsigned round = 0; round < rounds; ++round) {
    const stopwatch watch;
    const auto sums = eviction::simulate(of, which.name, which.capacity, replay_order::forward);
    if (!sums) return std::unexpected(sums.error());
    figure.add(watch.seconds());
    limit.add(time_bare_loop(of, last));
  }
  out.add(time_figure("policies", fmt::format("{}, {} blocks", which.name, which.capacity), figure, limit,
                      nanoseconds / static_cast<double>(of.stream().size()), "ns/access", which.promise));
  return {};
}

/// LRU of all capacities in one pass, and with the reading of the file before it.
result<void> measure_one_pass(const trace& of, const std::string& path, unsigned rounds, report& out) {
  const double scale = nanoseconds / static_cast<double>(of.stream().size());
  std::vector<std::uint64_t> last(of.distinct());
  samples pass;
  samples whole;
  samples limit;
  for (unsigned round = 0; round < rounds; ++round) {
    const stopwatch watch;
    const eviction::lru_curve curve(of);
    pass.add(watch.seconds());
    if (!path.empty()) {
      const stopwatch reading;
      const auto read = read_trace_file(path);
      if (!read) return std::unexpected(read.error());
      const eviction::lru_curve again(read->requests);
      whole.add(reading.seconds());
    }
    limit.add(time_bare_loop(of, last));
  }
  constexpr bound in_the_loop{bound::kind::value_at_most, 50};    // 20 M accesses/s
  constexpr bound with_reading{bound::kind::value_at_most, 100};  // 10 M accesses/s
  out.add(time_figure("policies", "lru, all capacities", pass, limit, scale, "ns/access", in_the_loop));
  if (!path.empty()) {
    out.add(time_figure("policies", "lru, all capacities, read", whole, limit, scale, "ns/access", with_reading));
  }
  return {};
}

}  // namespace

result<void> run_policies(const options& how, report& out) {
  trace of;
  if (how.trace.empty()) {
    of = make_trace();
  } else {
    auto read = read_trace_file(how.trace);
    if (!read) return std::unexpected(read.error());
    of = std::move(read->requests);
  }
  const unsigned rounds = how.rounds != 0 ? how.rounds : default_rounds;
  if (auto done = measure_one_pass(of, how.trace, rounds, out); !done) return done;
  for (const timed_policy& which : timed_policies) {
    if (auto done = measure(of, which, rounds, out); !done) return done;
  }
  return {};
}

}  // namespace cenote::bench
