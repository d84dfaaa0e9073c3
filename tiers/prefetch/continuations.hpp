// What followed a chain the last time: what a session is likely to want next.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "tiers/prefetch/commands.hpp"

namespace cenote::prefetch {

/// Learns from sessions whose next prefetch goes on where their last one ended (another turn of a conversation), and
/// knows it for whoever ends there later: the same conversation after a restart of its engine, or one that shares its
/// beginning. Bounded: the oldest knowledge goes. One thread.
class continuations {
 public:
  static constexpr std::size_t most = 4096;  ///< tips

  /// A session asks for `keys`; at most `ahead` of them are remembered behind an older tip.
  void learn(std::uint64_t session, std::uint32_t instance, std::uint32_t group, const key_list& keys,
             std::size_t ahead);
  /// What followed a chain with this last key; null: nothing is known.
  [[nodiscard]] key_list after(std::uint32_t instance, std::uint32_t group, const full_key& tip) const;
  void forget(std::uint64_t session) { last_.erase(session); }
  [[nodiscard]] std::size_t size() const noexcept { return known_.size(); }

 private:
  using place_key = std::tuple<std::uint32_t, std::uint64_t, std::uint64_t>;  ///< instance, key with its group
  [[nodiscard]] static place_key place_of(std::uint32_t instance, std::uint32_t group, const full_key& tip) noexcept;

  struct chain {
    std::uint32_t instance = 0;
    std::uint32_t group = 0;
    key_list keys;
  };
  std::unordered_map<std::uint64_t, chain> last_;  ///< of each session
  std::map<place_key, key_list> known_;
  std::deque<place_key> order_;  ///< of known_, the oldest first
};

}  // namespace cenote::prefetch
