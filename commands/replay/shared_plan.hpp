// What a replay and its engine processes share: the requests, the settings, and how far each one is. One memfd.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "commands/replay/content.hpp"
#include "core/error.hpp"
#include "core/histogram.hpp"
#include "core/instance_spec.hpp"
#include "core/unique_fd.hpp"
#include "memory/segment.hpp"
#include "simulation/trace.hpp"

namespace cenote::replay {

inline constexpr std::uint32_t most_engines = 64;
inline constexpr std::uint32_t most_nodes = 16;
inline constexpr std::uint32_t most_workers = 16;  ///< threads of an engine

enum class access_mode : std::uint32_t {
  copy,      ///< blocks are copied into the engine's own memory, and put from there
  in_place,  ///< blocks are read where they lie; new ones are reserved, filled in place and committed
};

/// The same for all engines. Written before they start.
struct run_settings {
  std::uint64_t block_bytes = 0;
  std::uint64_t block_tokens = simulation::trace::tokens_per_block;
  double speed = 0;  ///< how much faster than recorded; 0: back to back
  std::uint32_t nodes = 1;
  std::uint32_t engines = 1;  ///< of all nodes: as many of each, those of the first node first
  std::uint32_t workers = 1;  ///< requests that one engine serves at a time
  verify_mode verify = verify_mode::all;
  access_mode access = access_mode::copy;
  std::uint32_t lower_tier = 0;        ///< not 0: the node has NVMe, so what is only there is asked for
  std::uint32_t remote_tier = 0;       ///< not 0: what is not on this machine is asked for, too
  std::uint64_t prefetch_wait_ns = 0;  ///< how long a request waits for it
  std::uint64_t longest_chain = 0;     ///< blocks
  double prefill_rate = 0;             ///< tokens that an engine computes a second; 0: not known
  std::array<char, 64> device{};       ///< that blocks are read from and put on; empty: none, they are in DRAM
  std::array<std::array<char, 120>, most_nodes> sockets{};
  std::array<char, 64> instance{};

  [[nodiscard]] bool has_device() const noexcept { return device.front() != 0; }
  [[nodiscard]] std::uint32_t node_of(std::uint32_t engine) const noexcept { return engine / (engines / nodes); }
};

/// The instance that all engines of a replay use.
[[nodiscard]] instance_spec spec_of(const run_settings& settings);

struct planned_request {
  std::uint64_t first = 0;  ///< its first id
  std::uint32_t count = 0;  ///< blocks
  std::uint32_t engine = 0;
  std::uint64_t tokens = 0;
  std::uint64_t due_ms = 0;  ///< as recorded, from the first request on
};

/// A number with one writer.
class tally_word {
 public:
  void add(std::uint64_t amount) noexcept { value_.store(get() + amount, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t get() const noexcept { return value_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::uint64_t> value_{0};
};

/// What became of one request. Written by the worker that served it, and whole once begun() is not 0.
struct request_result {
  tally_word begun_ns;  ///< since the start of the replay; 0: not served (whole)
  tally_word upper;     ///< leading blocks that were in the uppermost tier when it came
  tally_word loaded;    ///< leading blocks read
};

/// What one thread of one engine did. Times in nanoseconds.
struct tally {
  tally_word requests;        ///< served
  tally_word failed;          ///< of those: a call failed
  tally_word down;            ///< … their node was killed under them
  tally_word blocks, tokens;  ///< of the requests served
  tally_word gpu_hits;        ///< leading blocks read that were on the device when the request came
  tally_word upper_hits;      ///< … beyond: in DRAM
  tally_word lower_hits;      ///< … that a prefetch brought up from this machine
  tally_word remote_hits;     ///< … and beyond: the machine did not have the next one
  tally_word missed;          ///< blocks that were none of these
  tally_word hit_tokens;      ///< the tokens in all hits
  tally_word gpu_tokens;      ///< … in those on the device
  tally_word upper_tokens;    ///< … in those that were in DRAM
  tally_word remote_tokens;   ///< … in those from the remote tier
  tally_word time_with;       ///< of whole requests, computing what was no hit included; 0 without a rate
  tally_word time_without;    ///< … as it would have been with the hits in DRAM alone
  tally_word bytes_read;      ///< of hits
  tally_word stored;          ///< blocks put
  tally_word bytes_stored;
  tally_word present;  ///< blocks that another engine had put meanwhile
  tally_word refused;  ///< blocks that found no room
  tally_word verified_bytes;
  tally_word wrong;                       ///< blocks with wrong bytes
  tally_word prefetches, prefetches_cut;  ///< asked for; given up after prefetch_wait_ns
  tally_word library_cpu, generate_cpu, verify_cpu;
  histogram match, load, put, prefetch, late;
  histogram with_lower, without_lower;  ///< time_with and time_without, request by request

  /// Why the hits of all tiers and the misses are not the blocks of the requests served; nothing: they are, or a
  /// request failed, of whose blocks nothing is known. Of workers at rest.
  [[nodiscard]] std::optional<std::string> wrong_sum() const;
  /// Adds what `other` has.
  void merge(const tally& other) noexcept;
};

enum class engine_phase : std::uint32_t { starting, ready, done, failed };

struct alignas(64) engine_state {
  std::atomic<engine_phase> phase{engine_phase::starting};
  std::atomic<std::uint32_t> message_bytes{0};  ///< released after the message is written
  std::array<char, 400> message{};              ///< of the first failure
};

/// Owns the mapping. Thread-safe as its parts are: settings and requests do not change once engines run.
class shared_plan {
 public:
  /// `engine_of`: an engine for each request.
  [[nodiscard]] static result<shared_plan> create(const run_settings& settings, const simulation::trace& trace,
                                                  std::span<const std::uint32_t> engine_of);
  /// In an engine: `fd` was inherited.
  [[nodiscard]] static result<shared_plan> open(unique_fd fd);

  [[nodiscard]] int fd() const noexcept { return memory_.fd().get(); }
  [[nodiscard]] const run_settings& settings() const noexcept { return head().settings; }
  [[nodiscard]] std::span<const planned_request> requests() const noexcept;
  [[nodiscard]] std::span<const std::uint64_t> ids(const planned_request& request) const noexcept;
  [[nodiscard]] request_result& result_of(const planned_request& which) const noexcept;
  [[nodiscard]] engine_state& engine(std::uint32_t number) const noexcept;
  [[nodiscard]] tally& worker(std::uint32_t engine, std::uint32_t number) const noexcept;
  /// All workers of one engine; of all engines.
  void sum(std::uint32_t engine, tally& into) const noexcept;
  void sum(tally& into) const noexcept;

  /// Nanoseconds of the steady clock at which the first request is due; 0 until go().
  [[nodiscard]] std::int64_t started() const noexcept { return head().start_ns.load(std::memory_order_acquire); }
  void go(std::int64_t start_ns) const noexcept { head().start_ns.store(start_ns, std::memory_order_release); }
  /// How often a node was killed by the replay. To be noted before it is.
  [[nodiscard]] std::uint32_t kills(std::uint32_t node) const noexcept {
    return head().kills[node].load(std::memory_order_acquire);
  }
  void note_kill(std::uint32_t node) const noexcept { head().kills[node].fetch_add(1, std::memory_order_release); }
  /// No further request is begun.
  void stop() const noexcept { head().stop.store(1, std::memory_order_relaxed); }
  [[nodiscard]] bool stopped() const noexcept { return head().stop.load(std::memory_order_relaxed) != 0; }

  /// Keeps the first message of an engine; one thread of it at a time.
  static void say(engine_state& engine, std::string_view message) noexcept;
  [[nodiscard]] static std::string said(const engine_state& engine);

 private:
  struct header {
    std::uint64_t magic;
    std::uint64_t bytes;
    run_settings settings;
    std::uint64_t request_count, requests_at, ids_at, id_count, results_at, engines_at, workers_at;
    std::atomic<std::int64_t> start_ns;
    std::atomic<std::uint32_t> stop;
    std::array<std::atomic<std::uint32_t>, most_nodes> kills;
  };

  explicit shared_plan(memory::segment memory) noexcept : memory_(std::move(memory)) {}
  [[nodiscard]] header& head() const noexcept { return *at<header>(0); }
  template <class T>
  [[nodiscard]] T* at(std::uint64_t offset) const noexcept {
    return reinterpret_cast<T*>(memory_.data() + offset);
  }

  memory::segment memory_;
};

}  // namespace cenote::replay
