// The head of an answer: the counts of a trace, and the names of its instances.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "commands/replay/trace.hpp"
#include "simulation/trace.hpp"

namespace cenote::optimize {

struct trace_counts {
  std::uint64_t requests = 0;  ///< that ask
  std::uint32_t instances = 0;
  std::uint32_t sessions = 0;
};
[[nodiscard]] trace_counts counts_of(const simulation::trace& requests);

/// {format, lines, left_out, requests, instances, tokens, blocks, distinct, block_tokens}.
[[nodiscard]] nlohmann::ordered_json summary_json(const read_trace& read);
/// One line without its end.
[[nodiscard]] std::string summary_text(const read_trace& read);

/// {instance, requests, tokens, blocks, distinct}, of the requests of one.
[[nodiscard]] nlohmann::ordered_json part_json(const std::string& instance, const simulation::trace& part);

/// The name of an instance; its number where the format has no names.
[[nodiscard]] std::string instance_name(const read_trace& read, std::uint32_t instance);

}  // namespace cenote::optimize
