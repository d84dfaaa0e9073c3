// The limit of a lookup: the same cache lines, read with nothing else done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "client/connection.hpp"
#include "commands/bench/support.hpp"
#include "core/block_key.hpp"
#include "core/error.hpp"
#include "memory/version_table.hpp"

namespace cenote::bench {

/// An instance's index and version table, which outlive it.
struct lookup_memory {
  const memory::index_memory& index;
  const memory::version_table& versions;
};

/// Addresses of cache lines, in the order of the keys.
using cache_lines = std::vector<const std::uint64_t*>;

/// The lines that a lookup of `keys` in group 0 reads: each key's run of index entries and its version entry.
/// Fails when a key is not there.
[[nodiscard]] result<cache_lines> lines_of(const lookup_memory& where, key_batch keys);

/// Reads a word of each line, prefetching ahead; the sum, so that nothing is left out.
[[nodiscard]] std::uint64_t read_lines(std::span<const std::uint64_t* const> lines) noexcept;

/// Some keys that are looked up together, and their lines.
struct chain {
  key_batch keys;
  cache_lines lines;
};

/// Times `use(chain)` against `plain(chain)`, which both return a result. They alternate, and never have the same chain
/// one after the other, so that neither finds what the other brought near. Round 0 only warms up.
template <class Use, class Plain>
result<void> time_in_turn(std::span<const chain> chains, unsigned rounds, Use&& use, Plain&& plain, samples& figure,
                          samples& limit) {
  for (unsigned round = 0; round <= rounds; ++round) {
    if (auto go_on = check_interrupted(); !go_on) return go_on;
    for (std::size_t i = 0; i < chains.size(); ++i) {
      const bool use_it = (i + round) % 2 == 0;
      const stopwatch time;
      const result<void> used = use_it ? use(chains[i]) : plain(chains[i]);
      const double seconds = time.seconds();
      if (!used) return std::unexpected(used.error());
      if (round != 0) (use_it ? figure : limit).add(seconds);
    }
  }
  return {};
}

/// time_in_turn() against reading the chain's lines.
template <class Use>
result<void> time_against_lines(std::span<const chain> chains, unsigned rounds, Use&& use, samples& figure,
                                samples& limit) {
  volatile std::uint64_t sink = 0;
  const auto read = [&](const chain& prompt) -> result<void> {
    sink = sink + read_lines(prompt.lines);
    return {};
  };
  return time_in_turn(chains, rounds, use, read, figure, limit);
}

/// A second attachment to an instance, for its segments alone.
class lookup_view {
 public:
  [[nodiscard]] static result<lookup_view> open(const std::string& socket, const instance_spec& spec);

  [[nodiscard]] lookup_memory memory() const noexcept { return {parts_.index, parts_.versions}; }

 private:
  explicit lookup_view(client::attachment parts) noexcept : parts_(std::move(parts)) {}
  client::attachment parts_;
};

/// `count` chains of `length` keys, spread evenly over `keys`, with their lines.
[[nodiscard]] result<std::vector<chain>> pick_chains(const lookup_memory& where, const key_list& keys,
                                                     std::size_t count, std::size_t length);

}  // namespace cenote::bench
