#include "commands/trace/convert.hpp"

#include <utility>

#include "commands/common.hpp"
#include "core/random_number.hpp"

namespace cenote::traces {

namespace {

using simulation::trace;

result<read_trace> read(const convert_options& options) {
  if (auto ok = options.target.check(); !ok) return std::unexpected(ok.error());
  optimize::trace_options from = options.trace;
  from.full_blocks = options.full_blocks;
  auto all = from.read();
  if (all) all->full_blocks = all->full_blocks || options.full_blocks;
  return all;
}

/// The same requests from 0 ms on.
trace from_zero(const trace& requests) {
  trace::numbered parts{.requests = {},
                        .blocks = {requests.stream().begin(), requests.stream().end()},
                        .identities = {requests.identities().begin(), requests.identities().end()},
                        .block_tokens = requests.block_tokens()};
  parts.requests.reserve(requests.requests().size());
  const std::uint64_t start = requests.requests().front().time_ms;
  for (const trace::entry& each : requests.requests()) {
    parts.requests.push_back(trace::arrival_of(each));
    parts.requests.back().time_ms -= start;
  }
  return trace(std::move(parts));
}

}  // namespace

exit_code run_convert(const convert_options& options) {
  auto all = read(options);
  if (!all) return failed_with(all.error());
  return write_target(std::move(*all), options.trace.path, options.target);
}

exit_code run_anonymise(const convert_options& options) {
  auto all = read(options);
  if (!all) return failed_with(all.error());
  all->requests = from_zero(all->requests);
  all->anonymised = true;
  all->seed = random_number();
  all->instances.clear();
  return write_target(std::move(*all), options.trace.path, options.target);
}

}  // namespace cenote::traces
