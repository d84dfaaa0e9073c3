#include "commands/bench/trace_lines.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <fstream>

namespace cenote::bench {

result<void> write_lines(const simulation::trace& trace, const std::string& path) {
  std::ofstream file(path);
  for (const simulation::trace::entry& each : trace.requests()) {
    file << fmt::format("{{\"timestamp\": {}, \"input_length\": {}, \"output_length\": 1, \"hash_ids\": [{}]}}\n",
                        each.time_ms, each.tokens, fmt::join(trace.ids(each), ", "));
  }
  file.close();
  if (!file) return fail_errno("write", path);
  return {};
}

std::vector<std::uint64_t> identities_of(const simulation::trace& trace) {
  std::vector<std::uint64_t> all;
  all.reserve(trace.stream().size());
  for (const std::uint32_t block : trace.stream()) all.push_back(trace.identities()[block]);
  return all;
}

}  // namespace cenote::bench
