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

/// Remembers which keys followed the last key of a chain: learned when a session's prefetch continues its previous one
/// (the next turn of a conversation), and used for later chains that end with the same key (the same conversation after
/// a restart of its engine, or one with a common beginning). Bounded: the oldest entries go first. Not thread-safe.
class continuations {
 public:
  static constexpr std::size_t most = 4096;  ///< last keys of which something is remembered

  /// A session asks for `keys`. If they continue its previous chain, up to `ahead` of the new ones are remembered for
  /// it.
  void learn(std::uint64_t session, std::uint32_t instance, std::uint32_t group, const key_list& keys,
             std::size_t ahead);
  /// The keys that followed a chain whose last key is `tip`; null: none are known.
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
