// The figures of a trace by which a cache is chosen: when blocks come again, how often, shared by how many.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "simulation/trace.hpp"

namespace cenote::simulation {

/// Values below a power of two, and at least half of it.
struct power_count {
  std::uint64_t limit = 1;
  std::uint64_t count = 0;
};

/// Counts values by the smallest power of two above them. Not thread-safe.
class power_histogram {
 public:
  void add(std::uint64_t value, std::uint64_t count = 1);
  /// Ascending, without empty ones.
  [[nodiscard]] std::vector<power_count> rows() const;

 private:
  std::map<std::uint64_t, std::uint64_t> counts_;  ///< by limit
};

/// The references of a trace by what lies between them and the last use of their block.
struct block_reuse {
  std::uint64_t cold = 0;              ///< first uses
  std::vector<power_count> distances;  ///< other blocks, in the order forward
  std::vector<power_count> times;      ///< ms
};

/// Nothing where reads and writes are requests of their own: a read brings nothing in, so distances mean no hits.
[[nodiscard]] std::optional<block_reuse> measure_reuse(const trace& trace);

/// A number of uses, and the blocks that have it.
struct use_count {
  std::uint64_t uses = 0;
  std::uint64_t blocks = 0;
};

/// The uses of blocks by requests that ask; a block that is only stored has none.
struct block_uses {
  std::vector<use_count> frequency;  ///< ascending
  double one_use_share = 0;          ///< of the blocks that are used
  double gini = 0;                   ///< of the uses of those: 0 for all alike, near 1 for all uses in one
};
[[nodiscard]] block_uses measure_uses(const trace& trace);

/// The leading blocks of each request that an endless cache has when it comes; 0 for those that only store.
[[nodiscard]] std::vector<std::uint32_t> endless_hits(const trace& trace);

/// Requests that ask, whose first block never came before them or that have none: no capacity gives them a hit.
struct helpless_requests {
  std::uint64_t requests = 0;
  double share = 0;  ///< of those that ask
};
[[nodiscard]] helpless_requests count_helpless(const trace& trace, std::span<const std::uint32_t> hits);

/// Leading blocks that engines had themselves, and those of an endless cache behind them.
struct engine_hits {
  std::uint64_t requests = 0;  ///< that have such blocks
  std::uint64_t blocks = 0;
  std::uint64_t tokens = 0;
  std::uint64_t more_blocks = 0;  ///< hits of an endless cache, less what the engine had in front
  std::uint64_t more_tokens = 0;
};
/// `hits` are those of endless_hits(). Nothing where no request has blocks that its engine had.
[[nodiscard]] std::optional<engine_hits> measure_engine_hits(const trace& trace, std::span<const std::uint32_t> hits);

/// The requests between `start_ms` and the next window.
struct time_window {
  std::uint64_t start_ms = 0;    ///< a multiple of the window
  std::uint64_t requests = 0;    ///< that ask
  std::uint64_t references = 0;  ///< blocks that they ask for
  std::uint64_t distinct = 0;    ///< blocks that came up to its end
  std::uint64_t hit_blocks = 0;  ///< of an endless cache
  std::uint64_t hit_tokens = 0;
};
/// Windows of `window_ms`, at least 1; those without requests are left out. `hits` are those of endless_hits().
[[nodiscard]] std::vector<time_window> measure_windows(const trace& trace, std::span<const std::uint32_t> hits,
                                                       std::uint64_t window_ms);

/// The party of a request that its blocks may be shared with others of.
enum class sharer : std::uint8_t { session, instance };

struct block_sharing {
  std::uint64_t sharers = 0;            ///< that have requests
  std::uint64_t shared_blocks = 0;      ///< that come in requests of more than one
  std::uint64_t shared_references = 0;  ///< to those blocks, by requests that ask
};
[[nodiscard]] block_sharing measure_sharing(const trace& trace, sharer kind);

/// The time from a session's request to its next one, which is its `turn`.
struct turn_delay {
  std::uint32_t turn = 0;  ///< 2 for the second request; the last row has all turns from `most_turns` on
  std::uint64_t requests = 0;
  std::uint64_t median_ms = 0;
  std::uint64_t p90_ms = 0;  ///< nearest rank, as the median
  std::uint64_t longest_ms = 0;
};
constexpr std::uint32_t most_turns = 32;
/// Of requests that ask; nothing where all are of one session, as those of traces without sessions are.
[[nodiscard]] std::optional<std::vector<turn_delay>> measure_turns(const trace& trace);

/// The hits that blocks of `block_tokens` tokens would bring.
struct block_size {
  std::uint64_t block_tokens = 0;
  std::uint32_t capacity = 0;        ///< in blocks of that size: as many tokens, rounded down
  std::uint64_t endless_tokens = 0;  ///< hit tokens of an endless cache
  std::uint64_t hit_tokens = 0;      ///< of LRU in the order reverse at the capacity
};
/// The trace's own size first, then its doubles from 16 to 1,024; `capacity` is in the trace's blocks. Nothing where
/// chains are no prefixes, or reads and writes are requests of their own.
[[nodiscard]] std::optional<std::vector<block_size>> measure_block_sizes(const trace& trace, std::uint32_t capacity);

/// An endless cache whose blocks go when they were not used for `seconds`.
struct ttl_hits {
  std::uint64_t seconds = 1;
  std::uint64_t hit_blocks = 0;  ///< leading blocks, each used less than `seconds` ago
  std::uint64_t hit_tokens = 0;
};
/// By power of two, from 1 up to where there are all hits of an endless cache. Nothing where reads and writes are
/// requests of their own.
[[nodiscard]] std::optional<std::vector<ttl_hits>> measure_ttls(const trace& trace);

}  // namespace cenote::simulation
