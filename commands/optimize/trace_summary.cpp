#include "commands/optimize/trace_summary.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/count_text.hpp"

namespace cenote::optimize {

using simulation::chain_access;
using simulation::trace;

trace_counts counts_of(const trace& requests) {
  trace_counts counts;
  for (const trace::entry& each : requests.requests()) {
    counts.requests += each.access == chain_access::write ? 0 : 1;
    counts.instances = std::max(counts.instances, each.instance + 1);
    counts.sessions = std::max(counts.sessions, each.session + 1);
  }
  return counts;
}

nlohmann::ordered_json summary_json(const read_trace& read) {
  const trace& requests = read.requests;
  const trace_counts counts = counts_of(requests);
  return {{"format", read.format},
          {"lines", read.lines},
          {"left_out", read.left_out},
          {"requests", counts.requests},
          {"instances", counts.instances},
          {"tokens", requests.tokens()},
          {"blocks", requests.asked_blocks()},
          {"distinct", requests.distinct()},
          {"block_tokens", requests.block_tokens()}};
}

std::string summary_text(const read_trace& read) {
  const trace& requests = read.requests;
  const trace_counts counts = counts_of(requests);
  std::string text = fmt::format("{}: {}", read.format, count_text(counts.requests, "request"));
  if (counts.instances > 1) text += fmt::format(" of {} instances", counts.instances);
  if (counts.sessions > 1) text += fmt::format(" in {} sessions", counts.sessions);
  return text + fmt::format(", {} tokens; {} full blocks of {} tokens, {} of them distinct", requests.tokens(),
                            requests.asked_blocks(), requests.block_tokens(), requests.distinct());
}

nlohmann::ordered_json part_json(const std::string& instance, const trace& part) {
  return {{"instance", instance},
          {"requests", counts_of(part).requests},
          {"tokens", part.tokens()},
          {"blocks", part.asked_blocks()},
          {"distinct", part.distinct()}};
}

std::string instance_name(const read_trace& read, std::uint32_t instance) {
  return instance < read.instances.size() ? read.instances[instance] : std::to_string(instance);
}

}  // namespace cenote::optimize
