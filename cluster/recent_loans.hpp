// Which node was sent a block last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

#include "cluster/pool_key.hpp"
#include "core/instance_identity.hpp"

namespace cenote::cluster {

/// Remembers of the last blocks that were sent who got them, and so may have a copy. Not thread-safe.
class recent_loans {
 public:
  static constexpr std::size_t most = 4096;  ///< blocks; the one that was sent first is forgotten

  void note(instance_identity identity, const block_key& key, const std::string& node);
  /// Empty: not known.
  [[nodiscard]] const std::string& borrower(instance_identity identity, const block_key& key) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }

 private:
  std::unordered_map<pool_key, std::string, pool_key_hash> nodes_;
  std::deque<pool_key> order_;
};

}  // namespace cenote::cluster
