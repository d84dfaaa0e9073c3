// The cost of a curve of the optimizer: the pass over a trace in memory beside the least that any pass does, and the
// command, process and file included, beside finding the file's line ends.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "commands/bench/optimize_replay.hpp"
#include "commands/bench/plain_loops.hpp"
#include "commands/bench/support.hpp"
#include "commands/bench/trace_lines.hpp"
#include "commands/programs.hpp"
#include "commands/replay/trace.hpp"
#include "keeper/child_process.hpp"
#include "simulation/formats/ctrace.hpp"
#include "simulation/optimize/interval_curve.hpp"

namespace cenote::bench::optimize_bench {

namespace {

using simulation::trace;

constexpr std::size_t references_made = 3'000'000;
constexpr std::size_t sessions_made = 2'000;
constexpr unsigned default_rounds = 20;
constexpr unsigned command_rounds = 5;
constexpr double nanoseconds = 1e9;
constexpr unsigned grid_policies = 7;
constexpr unsigned grid_capacities = 20;

/// Sessions that take turns, grow by some blocks each time and end at random; all begin with one of a few first paths,
/// as system prompts are.
trace make_trace() {
  constexpr std::size_t prompts = 16;
  constexpr std::size_t prompt_blocks = 8;
  std::mt19937_64 random(1);
  trace made;
  std::vector<std::vector<std::uint64_t>> sessions(sessions_made);
  std::uint64_t next = prompts * prompt_blocks;
  for (std::uint64_t time_ms = 0; made.stream().size() < references_made; time_ms += 25) {
    auto& session = sessions[random() % sessions_made];
    if (session.empty() || random() % 6 == 0) {
      session.clear();
      const std::uint64_t first = random() % prompts * prompt_blocks;
      for (std::uint64_t i = 0; i < prompt_blocks; ++i) session.push_back(first + i);
    }
    for (std::uint64_t more = random() % 12; more > 0; --more) session.push_back(next++);
    made.add(time_ms, session.size() * trace::tokens_per_block, session);
  }
  return made;
}

/// The least that a pass does: each request's number is written for each of its blocks.
double time_plain_pass(const trace& trace) {
  std::vector<std::uint32_t> users(trace.distinct());
  const stopwatch watch;
  std::uint32_t number = 0;
  for (const trace::entry& each : trace.requests()) {
    for (const std::uint32_t block : trace.blocks(each)) users[block] = number;
    ++number;
  }
  const double seconds = watch.seconds();
  volatile std::uint32_t kept = users.back();  // or nothing would be written
  (void)kept;
  return seconds;
}

result<double> time_command(const std::vector<std::string>& arguments) {
  child_process::setup setup{.command = {"cenote"}, .program = node_program(), .discard_output = true};
  setup.command.insert(setup.command.end(), arguments.begin(), arguments.end());
  const stopwatch watch;
  if (const auto done = run_program(setup); !done) return std::unexpected(done.error());
  return watch.seconds();
}

result<void> measure_pass(const trace& trace, unsigned rounds, report& out) {
  samples pass;
  samples plain;
  for (unsigned round = 0; round < rounds; ++round) {
    const stopwatch watch;
    if (!simulation::interval_curve::measure(trace))
      return fail(error_code::invalid_argument,
                  "the trace's chains are no prefixes: it has no pass for all capacities");
    pass.add(watch.seconds());
    plain.add(time_plain_pass(trace));
  }
  out.add(time_figure("optimize", "lru rev, all capacities, in memory", pass, plain,
                      nanoseconds / static_cast<double>(trace.stream().size()), "ns/reference",
                      {bound::kind::ratio_at_most, 8}));
  return {};
}

result<void> write_ctrace(const trace& trace, const std::string& path) {
  const auto file = formats::ctrace::encode(trace, {.full_blocks = true, .seed = 1});
  if (!file) return std::unexpected(file.error());
  std::ofstream target(path, std::ios::binary);
  target.write(reinterpret_cast<const char*>(file->data()), static_cast<std::streamsize>(file->size()));
  target.close();
  if (!target) return fail_errno("write", path);
  return {};
}

/// The limit: a process that ends at once, and the plain pass.
result<void> measure_ctrace(const trace& trace, const std::string& path, report& out) {
  if (auto written = write_ctrace(trace, path); !written) return written;
  samples whole;
  samples least;
  for (unsigned round = 0; round < command_rounds; ++round) {
    const auto seconds = time_command({"optimize", "curve", path, "--json"});
    if (!seconds) return std::unexpected(seconds.error());
    whole.add(*seconds);
    const auto start = time_command({"--version"});
    if (!start) return std::unexpected(start.error());
    least.add(*start + time_plain_pass(trace));
  }
  out.add(time_figure("optimize", "curve, process and .ctrace", whole, least,
                      nanoseconds / static_cast<double>(trace.stream().size()), "ns/reference", {}));
  return {};
}

result<void> measure_file(const trace& trace, const std::string& path, report& out) {
  samples whole;
  samples lines;
  for (unsigned round = 0; round < command_rounds; ++round) {
    const auto seconds = time_command({"optimize", "curve", path, "--json"});
    if (!seconds) return std::unexpected(seconds.error());
    whole.add(*seconds);
    const stopwatch watch;
    const auto ends = count_lines(path);
    if (!ends) return std::unexpected(ends.error());
    lines.add(watch.seconds());
  }
  out.add(time_figure("optimize", "curve, process and JSON", whole, lines,
                      nanoseconds / static_cast<double>(trace.stream().size()), "ns/reference", {}));
  return {};
}

/// The limit: a pass with a hash table for each cell of the grid, on all cores.
result<void> measure_grid(const trace& trace, const std::string& path, report& out) {
  const auto identities = identities_of(trace);
  std::vector<std::uint32_t> capacities;
  for (unsigned i = 1; i <= grid_capacities; ++i)
    capacities.push_back(
        std::max(1U, static_cast<std::uint32_t>(std::uint64_t{trace.distinct()} * i / grid_capacities)));
  samples whole;
  samples tables;
  volatile std::uint64_t kept = 0;
  for (unsigned round = 0; round < command_rounds; ++round) {
    const auto seconds =
        time_command({"optimize", "curve", path, "--json", "--policies", "fifo,lru,lfu,sieve,s3fifo,arc,tblru",
                      "--capacities", fmt::format("{}", fmt::join(capacities, ","))});
    if (!seconds) return std::unexpected(seconds.error());
    whole.add(*seconds);
    const stopwatch watch;
    kept = kept + count_repeats(identities, trace.distinct());
    const double cores = std::max(1U, std::thread::hardware_concurrency());
    tables.add(watch.seconds() * grid_policies * grid_capacities / cores);
  }
  out.add(time_figure("optimize", "7 policies at 20 capacities, process and JSON", whole, tables, 1, "s",
                      {bound::kind::ratio_at_most, 8}));
  return {};
}

}  // namespace

result<void> run(const options& options, report& out) {
  const auto directory = scratch_directory::make("");
  if (!directory) return std::unexpected(directory.error());
  std::string path = options.trace;
  trace requests;
  if (path.empty()) {
    path = *directory / "requests.jsonl";
    requests = make_trace();
    if (auto written = write_lines(requests, path); !written) return written;
  } else {
    auto read = read_trace_file(path, {.format = "auto", .full_blocks = true});
    if (!read) return std::unexpected(read.error());
    requests = std::move(read->requests);
  }
  if (auto done = measure_pass(requests, options.rounds != 0 ? options.rounds : default_rounds, out); !done)
    return done;
  if (auto done = measure_ctrace(requests, *directory / "requests.ctrace", out); !done) return done;
  if (auto done = measure_file(requests, path, out); !done) return done;
  if (auto done = measure_grid(requests, path, out); !done) return done;
  return optimize_replay::measure_plans(*directory / "", out);
}

}  // namespace cenote::bench::optimize_bench
