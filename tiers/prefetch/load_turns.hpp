// Turns of load commands from a tier below.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>

#include "core/shared_bound.hpp"

namespace cenote::prefetch {

/// Turns of a load command: users take turns, the instance groups of a user take turns within the user's, and instances
/// within their group's. So a window that is full of one user's loads goes to another one as it empties, however many
/// groups and instances the first one has. Not thread-safe.
class load_turns {
 public:
  /// Numbers of the last turns, 0: none yet. The smallest goes next.
  struct turn {
    std::uint64_t user = 0;
    std::uint64_t group = 0;
    std::uint64_t instance = 0;
    auto operator<=>(const turn&) const = default;
  };

  [[nodiscard]] turn last(const share_holder& holder, std::uint32_t instance) const {
    return {number_in(users_, holder.uid), number_in(groups_, holder), number_in(instances_, instance)};
  }
  void note(const share_holder& holder, std::uint32_t instance) {
    ++last_;
    note_in(users_, holder.uid);
    note_in(groups_, holder);
    note_in(instances_, instance);
  }

 private:
  static constexpr std::size_t limit = 1024;  ///< of each; then all have had their turn

  template <class Map>
  static std::uint64_t number_in(const Map& map, const typename Map::key_type& key) {
    const auto found = map.find(key);
    return found == map.end() ? 0 : found->second;
  }
  template <class Map>
  void note_in(Map& map, const typename Map::key_type& key) const {
    if (map.size() >= limit && !map.contains(key)) map.clear();
    map[key] = last_;
  }

  std::uint64_t last_ = 0;
  std::map<std::uint32_t, std::uint64_t> users_;
  std::map<share_holder, std::uint64_t> groups_;
  std::map<std::uint32_t, std::uint64_t> instances_;
};

}  // namespace cenote::prefetch
