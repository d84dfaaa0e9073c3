// Which nodes a block belongs to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/block_key.hpp"
#include "core/instance_identity.hpp"

namespace cenote::cluster {

/// A node that blocks may belong to.
struct place {
  std::string name;
  std::uint64_t weight = 0;  ///< its share grows with it; 0: nothing belongs there
  bool operator==(const place&) const = default;
};

/// Rendezvous hashing with weights (Thaler and Ravishankar, 1998; the weights after Schindelhauer and Schomaker, 2005):
/// a node that comes or goes moves the blocks that belong to it, and no others. Nodes that have the same places agree,
/// in whatever order they name them. Immutable; thread-safe.
class placement {
 public:
  placement() = default;
  explicit placement(std::vector<place> all);

  /// Indexes of the nodes that a block of an instance belongs to, the first home first; as many as there are, at most
  /// `into` has places. Returns how many. Cost: about 20 ns a node.
  std::size_t homes(instance_identity identity, const block_key& key, std::span<std::size_t> into) const noexcept;
  /// The first of them. There is one at least.
  [[nodiscard]] std::size_t home(instance_identity identity, const block_key& key) const noexcept;

  [[nodiscard]] bool is_empty() const noexcept { return seeds_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return seeds_.size(); }
  [[nodiscard]] const std::string& name(std::size_t index) const noexcept { return names_[index]; }

 private:
  [[nodiscard]] double score(std::size_t index, instance_identity identity, const block_key& key) const noexcept;

  std::vector<std::string> names_;
  std::vector<std::uint64_t> seeds_;
  std::vector<double> weights_;
  bool is_even_ = true;  ///< all weights are equal
};

}  // namespace cenote::cluster
