// The manager in this process: lookups with addresses, sessions with a journal in RocksDB, readers beside each other,
// evictions, restarts.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "commands/bench/manager/rows.hpp"

namespace cenote::bench::manager_bench {

namespace {

constexpr std::uint64_t default_keys = 1'000'000;
constexpr std::uint64_t many_keys = 10'000'000;  // from which on an index is large
constexpr unsigned default_rounds = 400;

/// Bytes of this process in memory.
double resident_memory() {
  std::ifstream file("/proc/self/statm");
  std::int64_t all = 0, resident = 0;
  file >> all >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE));
}

/// Fills the index, with rows about its size.
result<void> run_size_rows(const row_context& context) {
  const std::uint64_t keys = context.chains * chain_keys;
  const bool is_large = keys >= many_keys;
  const double memory = resident_memory();
  samples small;
  std::uint64_t written = 0;
  if (is_large) {
    written = default_keys / chain_keys;
    if (auto filled = context.manager.fill(chain_kind::one_spec, 0, written); !filled) return filled;
    row_context part = context;
    part.chains = written;
    auto times = time_prefixes(part, chain_kind::one_spec);
    if (!times) return std::unexpected(times.error());
    small = std::move(*times);
  }
  if (auto filled = context.manager.fill(chain_kind::one_spec, written, context.chains); !filled) return filled;
  // With few keys the journal's own memory is most of it.
  context.out.add({.bench = "manager",
                   .name = "memory",
                   .value = (resident_memory() - memory) / static_cast<double>(keys),
                   .unit = "bytes/key",
                   .promise = is_large ? bound{bound::kind::value_at_most, 128} : bound{}});
  if (!is_large) return {};
  const auto times = time_prefixes(context, chain_kind::one_spec);
  if (!times) return std::unexpected(times.error());
  context.out.add(time_figure("manager", "a key of a prefix, beside that of 1,000,000 keys", *times, small,
                              1e9 / double{chain_keys}, "ns", {bound::kind::ratio_at_most, 2}));
  return {};
}

result<void> run_rows(const row_context& context) {
  if (const auto opened = context.manager.open(context.manager.own_journal()); !opened) {
    return std::unexpected(opened.error());
  }
  auto done = context.manager.set_up();
  if (done) done = run_size_rows(context);
  if (done) done = context.manager.fill(chain_kind::eight_specs, 0, wide_chains);
  for (const auto run :
       {run_lookup_rows, run_network_rows, run_session_rows, run_reader_rows, run_restart_rows, run_reclaim_rows}) {
    if (done) done = run(context);
  }
  return done;
}

result<void> run_size(const options& options, report& out, std::uint64_t keys) {
  const auto folder = scratch_directory::make(std::filesystem::absolute(options.path).string());
  if (!folder) return std::unexpected(folder.error());
  const std::uint64_t chains = std::max<std::uint64_t>(keys / chain_keys, chain_instances);
  row_printer rows(out, chains * chain_keys);
  if (!options.rival.empty()) {
    if (auto started = rows.start_rival(options.rival); !started) return started;
  }
  const auto redis = private_server::start(*folder);
  if (!redis && redis.error().code() != error_code::unsupported) return std::unexpected(redis.error());
  private_manager manager(*folder);
  auto done = run_rows({.manager = manager,
                        .out = rows,
                        .folder = *folder,
                        .redis = redis ? &*redis : nullptr,
                        .rounds = options.rounds == 0 ? default_rounds : options.rounds,
                        .chains = chains});
  manager.close();
  if (auto finished = rows.finish(); done) done = finished;
  return done;
}

}  // namespace

result<void> run(const options& options, report& out) {
  const std::vector<std::uint64_t> sizes = options.blocks.empty() ? std::vector{default_keys} : options.blocks;
  for (const std::uint64_t keys : sizes) {
    if (auto done = run_size(options, out, keys); !done) return done;
  }
  return {};
}

}  // namespace cenote::bench::manager_bench
