// `cenote replay` without --simulate: its options, and what it prints.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "commands/replay/run.hpp"
#include "core/error.hpp"
#include "keeper/exit_code.hpp"
#include "simulation/trace.hpp"

namespace CLI {
class App;
}

namespace cenote::replay {

/// As a user gives them.
struct real_options {
  std::string nodes{};  ///< empty: one
  std::string route = "round-robin";
  std::string kill{};
  std::uint32_t engines = 2;
  std::string speed{};  ///< empty: max
  std::string block_bytes = "256KiB";
  std::string socket{};
  std::string gpu{};
  std::string dram{};
  std::string nvme{};
  std::string nvme_at{};
  std::string remote{};
  std::string policy{};
  std::string verify = "all";
  std::string access = "copy";
  std::string partition = "conversation";
  std::string prefetch_wait = "1s";
  double prefill_rate = 0;
  std::uint32_t workers = 0;
  std::string report{};
  std::vector<std::string> sets{};

  void add_to(CLI::App& command);
};

/// Refuses (invalid_argument) what makes no sense, saying what would be right.
[[nodiscard]] result<run_options> parse(const real_options& options);

/// The bytes that a block of this size takes in a tier.
[[nodiscard]] result<std::uint64_t> parse_block(const std::string& text);

/// What a report says of where its requests come from.
struct request_source {
  std::string name;            ///< file or description
  std::string generated;       ///< the description, if it is one
  std::uint64_t lines = 0;     ///< of the file; 0: generated
  std::uint64_t left_out = 0;  ///< of those
};

/// Replays, prints table or JSON, and writes the report.
[[nodiscard]] exit_code run_real(const simulation::trace& trace, const request_source& source,
                                 const real_options& options, bool as_json);

}  // namespace cenote::replay
