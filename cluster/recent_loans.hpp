// Which node was sent a block last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>

#include "core/block_key.hpp"

namespace cenote::cluster {

/// Remembers of the last blocks that were sent who got them, and so may have a copy. Not thread-safe.
class recent_loans {
 public:
  static constexpr std::size_t most = 4096;  ///< blocks; the one that was sent first is forgotten

  void note(std::uint64_t identity, const block_key& key, const std::string& node);
  /// Empty: not known.
  [[nodiscard]] const std::string& borrower(std::uint64_t identity, const block_key& key) const noexcept;
  [[nodiscard]] std::size_t size() const noexcept { return nodes_.size(); }

 private:
  struct name {
    std::uint64_t identity = 0;
    block_key key;
    bool operator==(const name&) const = default;
  };
  struct name_hash {
    std::size_t operator()(const name& of) const noexcept { return block_key_hash()(of.key) ^ of.identity; }
  };

  std::unordered_map<name, std::string, name_hash> nodes_;
  std::deque<name> order_;
};

}  // namespace cenote::cluster
