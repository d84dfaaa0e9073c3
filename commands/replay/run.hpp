// A trace replayed against a real node by real engine processes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "commands/replay/options.hpp"
#include "commands/replay/partition.hpp"
#include "commands/replay/result.hpp"
#include "commands/replay/shared_plan.hpp"
#include "core/error.hpp"
#include "simulation/pool_simulation.hpp"
#include "simulation/trace.hpp"

namespace cenote::replay {

/// One of several nodes is killed on the way, and started again.
struct planned_kill {
  std::uint32_t node = 0;  ///< from 0
  double at = 0;           ///< share of the requests
};

struct run_options {
  std::string trace;        ///< what the report calls it
  std::string socket;       ///< empty: a node of our own
  std::uint32_t nodes = 1;  ///< of our own, in one cluster
  simulation::pool_route route = simulation::pool_route::round_robin;
  std::optional<planned_kill> kill;
  std::uint32_t engines = 2;  ///< of each node
  std::uint32_t workers = 0;  ///< 0: one when back to back, else four
  double speed = 0;           ///< 0: back to back
  std::uint64_t block_bytes = std::uint64_t{256} << 10;
  verify_mode verify = verify_mode::all;
  access_mode access = access_mode::copy;
  partition_mode partition = partition_mode::conversation;
  std::chrono::nanoseconds prefetch_wait = std::chrono::seconds(1);
  double prefill_rate = 0;  ///< tokens a second; 0: not known
  // Of a node of our own, each if there are several:
  std::optional<gpu_tier> gpu;        ///< on which the engines' blocks lie; nothing: in DRAM
  std::uint64_t dram = 0;             ///< bytes; 0: chosen from trace and machine
  std::optional<std::uint64_t> nvme;  ///< bytes, 0: no such tier; nothing: chosen from trace and disk
  std::string nvme_at;                ///< where its directory is made; empty: the directory for temporary files
  std::string remote;                 ///< a place outside the machine; empty: no such tier
  std::string policy;                 ///< empty: the node's default
  std::vector<std::string> sets;      ///< further key=value
  bool quiet = false;                 ///< no progress on stderr
};

/// Replays `trace`. The process must have no other thread. Errors: what keeps the replay from starting; what goes wrong
/// later stands in the result.
[[nodiscard]] result<replay_result> run(const simulation::trace& trace, const run_options& options);

}  // namespace cenote::replay
