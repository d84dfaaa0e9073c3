#include "commands/bench/bench.hpp"

#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <string_view>

#include "commands/bench/support.hpp"
#include "commands/common.hpp"
#include "commands/interruption.hpp"
#include "core/copy_measurement.hpp"
#include "core/machine_choice.hpp"

namespace cenote {

namespace {

struct bench_command {
  std::string_view name;
  std::string_view about;
  result<void> (*run)(const bench::options&, bench::report&);
};

constexpr std::array benches{
    bench_command{"machine", "The kind of this machine, and the rate of its memcpy", bench::run_machine},
    bench_command{"lookup",
                  "Finding a chain of 1,000 keys among a million blocks, against reading the same cache lines",
                  bench::lookup_bench::run},
    bench_command{"get", "Copying reads against memcpy; readers beside a busy writer", bench::copy_bench::run_get},
    bench_command{"put", "Puts against memcpy", bench::copy_bench::run_put},
    bench_command{"acquire", "Zero-copy reads: the cost of pinning a block", bench::acquire_bench::run},
    bench_command{"wake", "A request to the node, against waking another process and being woken",
                  bench::wake_bench::run},
    bench_command{"commits", "Commits of 64 sessions that do not wait, against a store alone on one thread",
                  bench::commits_bench::run},
    bench_command{"nvme", "Reading and writing a file past the page cache, against fio", bench::nvme_bench::run},
    bench_command{"copies",
                  "All ways to copy and to sum against memcpy, and the one that a node chooses against the best",
                  bench::copies_bench::run},
    bench_command{"checksums", "The checksum of a block by each set of instructions, against memcpy of as many bytes",
                  bench::checksums_bench::run},
    bench_command{"policies", "A block access in the simulation of eviction policies, against one array write",
                  bench::policies_bench::run},
    bench_command{"optimize", "Curves of the optimizer, against a bare pass over the same blocks and finding line ends",
                  bench::optimize_bench::run},
    bench_command{"gpu", "Copies, kernels and overlap of a GPU against its link and memory; simulated without one",
                  bench::gpu_bench::run},
    bench_command{"gpu_kill", "How long after an engine was killed its GPU still writes, against gpu.quarantine",
                  bench::gpu_kill_bench::run},
    bench_command{"gpu_tier", "Blocks from DRAM to a device and back by the node, against one copy of as many bytes",
                  bench::gpu_tier_bench::run},
    bench_command{"indexer",
                  "The indexer's index: stores, answers, memory, events, questions over HTTP and of a conversation",
                  bench::indexer_bench::run},
    bench_command{
        "manager",
        "The manager's lookups, sessions, evictions and restart, against echoes, json_util, Redis and threads",
        bench::manager_bench::run},
    bench_command{"remote",
                  "Blocks put to, got from and located on a Redis server, against a bare pipelined loop and "
                  "redis-benchmark",
                  bench::remote_bench::run},
    bench_command{"peer",
                  "Blocks and requests between two processes by the network of nodes, against a blocking socket",
                  bench::peer_bench::run},
    bench_command{"records", "Reading and checking a node's block records in a plain loop: the limit of a restart",
                  bench::records_bench::run},
};

struct bench_options {
  bench::options how;
  bool as_json = false;
};

/// Benches without a node copy as a node and its clients do on this machine.
void use_measured_choice() {
  machine_decisions decisions;
  if (measure_round(decisions)) use_choice(words_of(decisions.choice(page_kind::huge)));
}

exit_code run_bench(const bench_command& which, const bench_options& options) {
  watch_for_interruption();
  use_measured_choice();
  bench::report out(options.as_json);
  const auto done = which.run(options.how, out);
  out.finish();
  if (interrupted()) return exit_code::ended_at_once;
  return done ? exit_code::orderly : failed_with(done.error());
}

}  // namespace

void add_benches(CLI::App& app) {
  app.footer(
      "Each bench starts a small node of its own and stops it again. Its figures are medians; the limit is\n"
      "measured in turn with them. Leave the machine alone meanwhile. `lookup` takes 5 GiB of memory, the\n"
      "others 1 GiB. `machine`, `records`, `nvme`, `copies`, `checksums`, `indexer`, `manager`, `policies`, "
      "`optimize`, `gpu`, "
      "`gpu_kill`, "
      "`remote` "
      "and "
      "`peer` "
      "need no node; "
      "`nvme` "
      "needs fio, "
      "and a file\n"
      "system with direct I/O; `remote` starts a Redis server of its own (package redis-tools) unless --url names "
      "one.");
  for (const auto& each : benches) {
    auto* one = app.add_subcommand(std::string(each.name), std::string(each.about));
    auto options = std::make_shared<bench_options>();
    one->add_flag("--json", options->as_json, "A line each: bench, case, value, unit, limit, ratio, bound, kept");
    if (each.name == "nvme") {
      one->add_option("--path", options->how.path, "Directory for its file; the current one");
      one->add_option("--size", options->how.size, "Size of its file")->capture_default_str();
    } else if (each.name == "manager") {
      one->add_option("--path", options->how.path, "Directory for its journal; the current one");
      one->add_option(
          "--beside", options->how.rival,
          "A program that prints lines {\"row\": NAME, \"us\": [NUMBER, ...]}: it runs in turn with the rows, "
          "and its medians are the limits of those of its names");
    } else if (each.name == "policies" || each.name == "optimize" || each.name == "indexer") {
      one->add_option("--trace", options->how.trace, "Requests as Mooncake publishes them; a made trace if not given");
    } else if (each.name.starts_with("gpu")) {
      one->add_option(
          "--device", options->how.device,
          "cuda:NUMBER, cuda:GPU-UUID or sim:0 (threads: no figures of a GPU); the first GPU if there is one");
      one->add_flag("--quick", options->how.quick, "Little of everything: to see that it runs, not for figures");
    } else if (each.name == "remote") {
      one->add_option("--url", options->how.url,
                      "Use this server, redis://HOST:PORT or unix:///PATH, without a password; what the bench puts "
                      "there it removes");
      one->add_flag("--quick", options->how.quick, "Little of everything: to see that it runs, not for figures");
    } else if (each.name == "peer") {
      one->add_flag("--quick", options->how.quick, "Little of everything: to see that it runs, not for figures");
      auto* veth =
          one->add_flag("--veth", options->how.veth, "Between two network namespaces, not over loopback (as root)");
      one->add_flag("--no-offload", options->how.no_offload, "By devices that neither cut nor join segments")
          ->needs(veth);
    } else if (each.name == "records") {
      one->add_option("--memory", options->how.memory, "The segment, as /proc/PID/fd/NUMBER of the keeper")->required();
      one->add_option("--count", options->how.count, "How many records are read, from the first one on")->required();
    } else if (each.name != "checksums" && each.name != "copies" && each.name != "machine") {
      one->add_option("--socket", options->how.socket,
                      "Use the node at this socket; blocks of its other users may be evicted");
    }
    one->add_option("--rounds", options->how.rounds, "How often figure and limit alternate")
        ->check(CLI::Range(1, 1'000'000));
    if (each.name == "lookup" || each.name == "indexer" || each.name == "manager") {
      one->add_option("--blocks", options->how.blocks,
                      "Sizes of the index, comma between; in memory alone, without a node")
          ->delimiter(',');
    }
    one->callback([&each, options] { end_with(run_bench(each, *options)); });
  }
}

}  // namespace cenote
