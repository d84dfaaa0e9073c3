// What a replay found out: what the table, the JSON object and the report page are made of.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "commands/replay/shared_plan.hpp"

namespace cenote::replay {

/// A part of nothing is 0.
[[nodiscard]] constexpr double ratio(double part, double whole) noexcept {
  return whole > 0 ? part / whole : 0;
}

/// Hit tokens that came from NVMe: from no other tier.
[[nodiscard]] inline std::uint64_t nvme_tokens_in(const tally& sums) noexcept {
  return sums.hit_tokens.get() - sums.gpu_tokens.get() - sums.upper_tokens.get() - sums.remote_tokens.get();
}

/// Of the node, since the replay began; bytes and blocks. Counted on over restarts of the worker.
struct node_movement {
  std::uint64_t gpu_written = 0;   ///< bytes, from the device to DRAM
  std::uint64_t gpu_read = 0;      ///< bytes, from DRAM to the device
  std::uint64_t gpu_evicted = 0;   ///< blocks that left the device
  std::uint64_t gpu_dropped = 0;   ///< of those: without a copy in DRAM
  std::uint64_t written_down = 0;  ///< bytes, DRAM to NVMe
  std::uint64_t read_up = 0;       ///< bytes, NVMe to DRAM
  std::uint64_t evicted = 0;       ///< blocks that left DRAM
  std::uint64_t dropped = 0;       ///< of those: without a copy below, though there is a tier
  std::uint64_t lower_evicted = 0;
  std::uint64_t remote_put = 0;          ///< bytes, from DRAM to outside the machine
  std::uint64_t remote_got = 0;          ///< bytes, from there to DRAM
  std::uint64_t remote_unreachable = 0;  ///< transfers without an answer in time
  std::uint64_t remote_not_put = 0;      ///< blocks: no room there, or nobody was asked
  std::uint64_t fetched = 0;             ///< blocks, from other nodes
  std::uint64_t lent = 0;                ///< … to other nodes
  std::uint64_t hosted = 0;              ///< … that others stored here
  std::uint64_t offered = 0;             ///< … stored at others
  std::uint64_t checksum_errors = 0;
  std::uint64_t cannot_win = 0;            ///< prefetches refused, as recomputing is faster
  std::uint64_t cut = 0;                   ///< … that ended where the rest stopped to pay
  std::uint64_t compared = 0;              ///< … that were compared with recomputing
  std::uint64_t probes = 0;                ///< windows that were loaded to measure the disk
  double waited_s = 0;                     ///< for the answers of those compared
  double recompute_s = 0;                  ///< what computing all of them would have taken
  double saved_s = 0;                      ///< what of that came
  double lost_s = 0;                       ///< waited longer than was saved, by those that did
  std::optional<std::uint64_t> put_waits;  ///< puts that waited for memory; nothing: this node does not count them

  node_movement& operator+=(const node_movement& other);
};

/// What the node knows of its disk's loads.
struct disk_estimate {
  double bytes_per_s = 0;  ///< as measured last; 0: never
  double latency_s = 0;
  double age_s = 0;  ///< since something came
};

/// The state at one moment; all but the uses are totals since the start.
struct sample {
  double seconds = 0;
  std::uint64_t requests = 0;
  std::uint64_t tokens = 0;
  std::uint64_t blocks = 0;
  std::uint64_t gpu_hits = 0;
  std::uint64_t upper_hits = 0;
  std::uint64_t lower_hits = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_stored = 0;
  std::uint64_t hit_tokens = 0;
  std::uint64_t gpu_tokens = 0;     ///< of those: on the device
  std::uint64_t upper_tokens = 0;   ///< … in DRAM
  std::uint64_t remote_tokens = 0;  ///< … from outside the machine
  std::uint64_t gpu_used = 0;
  std::uint64_t dram_used = 0;
  std::uint64_t nvme_used = 0;
  disk_estimate disk{};
  std::string at_work{};  ///< the policy that `auto` has at work; empty: another policy
  node_movement moved{};
};

struct engine_result {
  std::uint32_t number = 0;   ///< from 0
  std::uint64_t planned = 0;  ///< requests that it serves
  std::uint64_t served = 0;
  std::uint64_t tokens = 0;
  std::uint64_t hit_tokens = 0;
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_stored = 0;
  bool orderly = true;
  std::string end{};      ///< how it ended, if not as it should
  std::string message{};  ///< its first failure
};

/// One of several nodes.
struct node_result {
  std::string name{};
  std::uint64_t dram_capacity = 0;
  std::uint64_t nvme_capacity = 0;
  std::uint64_t planned = 0;  ///< requests of its engines
  std::unique_ptr<tally> sums = std::make_unique<tally>();
  node_movement moved{};
  std::optional<double> killed_at{};   ///< seconds after the start
  std::optional<double> back_after{};  ///< seconds from there until its engines could attach again
};

/// One policy's hits by capacity, as simulated.
struct simulated_curve {
  std::string policy;
  std::vector<double> hit_ratio;
};

/// The node of this replay as a simulation: same policy, same capacities, and the requests that were served, in the
/// order and at the times in which they began.
struct simulated_node {
  std::uint32_t gpu_blocks = 0;  ///< 0: no such tier
  std::uint32_t dram_blocks = 0;
  std::uint32_t nvme_blocks = 0;  ///< 0: no such tier
  std::uint64_t prefix_hits = 0;
  double hit_ratio = 0;
  std::vector<double> by_tier{};  ///< of several tiers: of it, the upper one first
};

/// The nodes of this replay as a simulation: the same homes, policy, capacities and rule for copies, and the requests
/// that were served, each at its node, in the order and at the times in which they began. No node dies in it.
struct simulated_nodes {
  std::uint32_t dram_blocks = 0;   ///< of each
  std::optional<double> copies{};  ///< share of each for copies; nothing: no rule
  double hit_ratio = 0;
  double local_ratio = 0;     ///< of it: what the request's node had itself
  double one_node_ratio = 0;  ///< one node with the memory of all
  double alone_ratio = 0;     ///< each node without the others
};

/// Where and how something was run.
struct provenance {
  std::string version;
  std::string command;
  std::string host;  ///< its class: processor, cores, memory, kernel
  std::string seed;  ///< of made-up requests; empty: a recorded trace
};

struct replay_result {
  provenance from;
  std::string trace;           ///< file or description
  std::uint64_t lines = 0;     ///< of the file
  std::uint64_t left_out = 0;  ///< of those, because they make no sense
  run_settings settings;
  std::uint64_t planned = 0;
  std::uint64_t distinct_blocks = 0;
  double seconds = 0;
  std::unique_ptr<tally> sums = std::make_unique<tally>();
  std::vector<engine_result> engines;
  std::vector<sample> timeline;
  simulation::trace ran;                            ///< what was served, as it began
  std::vector<node_result> nodes;                   ///< of several
  std::vector<std::uint32_t> ran_at;                ///< the node of each request of `ran`
  std::optional<simulated_node> simulated{};        ///< of a node of our own
  std::optional<simulated_nodes> simulated_pool{};  ///< of several
  node_movement moved;
  disk_estimate disk{};            ///< at the end
  std::uint64_t restarts = 0;      ///< of the worker, during the replay
  std::uint64_t gpu_capacity = 0;  ///< 0: no such tier
  std::uint64_t dram_capacity = 0;
  std::uint64_t nvme_capacity = 0;
  bool has_remote = false;
  std::string policy;                      ///< of DRAM
  std::string gpu_policy;                  ///< of the device's tier
  std::optional<double> node_cpu_seconds;  ///< keeper and worker; nothing where /proc does not show them
  double memcpy_rate = 0;                  ///< bytes a second of one core, measured after the run
  std::vector<std::uint32_t> capacities;   ///< of `curves`, blocks
  std::vector<simulated_curve> curves;
  bool own_node = false;
  bool interrupted = false;
  std::vector<std::string> failures;  ///< what makes this run no success, a sentence each

  [[nodiscard]] std::uint64_t bytes_moved() const noexcept {
    return sums->bytes_read.get() + sums->bytes_stored.get() + moved.written_down + moved.read_up + moved.remote_put +
           moved.remote_got + moved.gpu_written + moved.gpu_read;
  }
  [[nodiscard]] bool has_gpu() const noexcept { return settings.has_device(); }
  /// What engines read from and put on.
  [[nodiscard]] const char* first_tier() const noexcept { return has_gpu() ? "GPU" : "DRAM"; }
  /// Hit tokens that came from NVMe: neither from memory nor from outside the machine.
  [[nodiscard]] std::uint64_t nvme_tokens() const noexcept { return nvme_tokens_in(*sums); }
  [[nodiscard]] double hit_ratio() const noexcept {
    const auto tokens = static_cast<double>(sums->tokens.get());
    return tokens == 0 ? 0.0 : static_cast<double>(sums->hit_tokens.get()) / tokens;
  }
};

}  // namespace cenote::replay
