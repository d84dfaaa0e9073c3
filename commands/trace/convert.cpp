#include "commands/trace/convert.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "commands/common.hpp"
#include "commands/trace/info.hpp"
#include "core/random_number.hpp"
#include "core/whole_file.hpp"
#include "simulation/formats/ctrace.hpp"

namespace cenote::traces {

namespace {

using simulation::trace;

result<void> check_target(const convert_options& options) {
  std::error_code unknown;
  const auto status = std::filesystem::status(options.out, unknown);
  if (!std::filesystem::exists(status)) return {};
  if (!std::filesystem::is_regular_file(status)) {
    return fail(error_code::invalid_argument, fmt::format("--out {} is no plain file", options.out));
  }
  if (options.force) return {};
  return fail(error_code::invalid_argument, fmt::format("--out {} is there already; --force replaces it", options.out));
}

result<read_trace> read(const convert_options& options) {
  if (auto ok = check_target(options); !ok) return std::unexpected(ok.error());
  optimize::trace_options from = options.trace;
  from.full_blocks = options.full_blocks;
  auto all = from.read();
  if (all) all->full_blocks = all->full_blocks || options.full_blocks;
  return all;
}

exit_code write(read_trace source, const convert_options& options) {
  const auto bytes = formats::ctrace::encode(source.requests, {.lines = source.lines,
                                                               .left_out = source.left_out,
                                                               .full_blocks = source.full_blocks,
                                                               .anonymised = source.anonymised,
                                                               .seed = source.seed});
  if (!bytes) return failed_with(bytes.error().in(options.trace.path));
  if (auto ok = replace_whole(options.out, *bytes); !ok) return failed_with(ok.error());
  source.format = own_format;
  print(summary_of(source, bytes->size()), options.as_json);
  return exit_code::orderly;
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
  return write(std::move(*all), options);
}

exit_code run_anonymise(const convert_options& options) {
  auto all = read(options);
  if (!all) return failed_with(all.error());
  all->requests = from_zero(all->requests);
  all->anonymised = true;
  all->seed = random_number();
  return write(std::move(*all), options);
}

}  // namespace cenote::traces
