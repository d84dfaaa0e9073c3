// The limit of a restart: one process that starts, maps the block records of a node, and reads and checks each.
#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>

#include "commands/bench/plain_loops.hpp"
#include "commands/bench/support.hpp"
#include "core/unique_fd.hpp"
#include "memory/block_record.hpp"

namespace cenote::bench::records_bench {

result<void> run(const options& options, report& out) {
  if (options.memory.empty()) {
    return fail(error_code::invalid_argument, "--memory must name the node's segment of records: /proc/PID/fd/NUMBER");
  }
  const unsigned rounds = std::max(options.rounds, 1U);
  samples times;
  record_counts found;
  for (unsigned round = 0; round < rounds; ++round) {
    const stopwatch watch;
    unique_fd file(::open(options.memory.c_str(), O_RDWR | O_CLOEXEC));
    if (!file) return fail_errno("open", options.memory);
    const auto records = memory::record_table::open(std::move(file));
    if (!records) return std::unexpected(records.error());
    const auto count = static_cast<std::uint32_t>(std::min<std::uint64_t>(options.count, memory::max_records));
    records->memory().populate(memory::page_bytes, std::uint64_t{count} * sizeof(memory::block_record),
                               memory::access::read_only);
    found = check_records(*records, count);
    times.add(watch.seconds());
  }
  if (found.damaged != 0) {
    return fail(error_code::malformed, fmt::format("{} of {} records have no key", found.damaged, found.present));
  }
  out.add(
      time_figure("records", fmt::format("{} present of {} read", found.present, options.count), times, {}, 1, "s"));
  return {};
}

}  // namespace cenote::bench::records_bench
