// Names that a node has published before any engine named the blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>

#include "services/indexer/forest/holder_table.hpp"
#include "services/indexer/forest/index_budget.hpp"

namespace cenote::indexer {

/// A set of media, a bit each.
using medium_mask = std::uint8_t;

/// Hashes and the media in which a node has their blocks, out of the index's memory. Not thread-safe.
class pending_names {
 public:
  static constexpr std::size_t most_names = std::size_t{1} << 20;  ///< of a node

  explicit pending_names(index_budget& budget) : names_(name_allocator(budget)) {}

  /// False: there is no room.
  [[nodiscard]] bool add(std::uint64_t hash, medium_number medium) noexcept;
  /// True if the name waited with this medium.
  bool remove(std::uint64_t hash, medium_number medium) noexcept;
  /// The media of a name, which waits no more.
  [[nodiscard]] medium_mask extract(std::uint64_t hash) noexcept;
  void clear() noexcept { names_.clear(); }
  /// Those of one medium.
  void clear(medium_number medium) noexcept;

  [[nodiscard]] bool empty() const noexcept { return names_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }

 private:
  using name_allocator = budget_allocator<std::pair<const std::uint64_t, medium_mask>>;

  std::unordered_map<std::uint64_t, medium_mask, std::hash<std::uint64_t>, std::equal_to<>, name_allocator> names_;
};

}  // namespace cenote::indexer
