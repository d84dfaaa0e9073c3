// What tiers below that have no hints are asked about a chain, and what they said.
#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/block_key.hpp"
#include "tiers/prefetch/commands.hpp"
#include "tiers/prefetch/throughput.hpp"

namespace cenote::prefetch {

/// One question about the keys of a chain that are `unasked`, from the first of them on: to all tiers below that may
/// have them, at once. Of several that have a key the nearest counts. Not thread-safe.
class inquiry {
 public:
  /// About `places` before `end`, which has no absent one before. Asks for at most key_query::most keys: the chain ends
  /// where they do.
  inquiry(const std::vector<spot>& places, std::size_t end, std::bitset<max_edges> asks);

  /// The questions to send, which shall be answered by `until`.
  [[nodiscard]] std::vector<question> send(std::uint64_t number, std::uint32_t instance, std::uint32_t group,
                                           const std::vector<full_key>& keys, time_point now, nanoseconds patience);
  /// A tier's answer. A key that it does not speak of is not there.
  void take(edge_number edge, const std::vector<bool>& held, std::vector<spot>& places);
  /// What nobody said to have is absent. Returns the end of the chain: its first key that is nowhere, or that was not
  /// asked for.
  std::size_t close(std::vector<spot>& places) const;

  [[nodiscard]] std::size_t first() const noexcept { return first_; }
  /// The end of the chain if all that is asked for is there.
  [[nodiscard]] std::size_t reach() const noexcept { return reach_; }
  [[nodiscard]] bool is_sent() const noexcept { return sent_; }
  [[nodiscard]] bool is_answered() const noexcept { return sent_ && open_.none(); }
  [[nodiscard]] time_point until() const noexcept { return until_; }

 private:
  std::vector<std::uint32_t> which_;  ///< of the chain's keys
  std::size_t first_ = 0;
  std::size_t reach_ = 0;
  std::bitset<max_edges> open_;  ///< tiers that have not answered
  bool sent_ = false;
  time_point until_{};
};

}  // namespace cenote::prefetch
