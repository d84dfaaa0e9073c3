// Blocks at places, as a tier has them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/tiers/block_changes/change_list.hpp"
#include "tiers/block_changes/block_changes.hpp"

namespace cenote::testing {

inline full_key key_of(std::uint64_t n) {
  std::array<std::byte, 16> bytes{};
  std::memcpy(bytes.data(), &n, sizeof n);
  return full_key(bytes);
}

class placed_blocks final : public block_listing {
 public:
  explicit placed_blocks(std::size_t most_waiting = 1024) : changes(most_waiting) {}

  block_place list(block_place first, std::size_t steps, std::vector<tier_change>& changes_found) const override {
    for (auto next = blocks.lower_bound(first); next != blocks.end(); ++next, --steps) {
      if (steps == 0) return next->first;
      changes_found.push_back({tier_change_kind::stored, next->second.first, 0, next->second.second});
    }
    return end_of_places;
  }
  [[nodiscard]] std::optional<change_subject> subject_of(std::uint32_t instance) const override {
    return change_subject{instance, model, groups};
  }

  void store(block_place place, std::uint64_t n, std::uint32_t instance = 1) {
    blocks[place] = {instance, key_of(n)};
    changes.stored(place, instance, 0, key_of(n));
  }
  void remove(block_place place) {
    const auto gone = blocks.extract(place);
    changes.removed(place, gone.mapped().first, 0, gone.mapped().second);
  }
  void move(block_place origin, block_place target) {
    auto moved = blocks.extract(origin);
    moved.key() = target;
    changes.moved(origin, target, moved.mapped().first, 0, moved.mapped().second);
    blocks.insert(std::move(moved));
  }
  void clear(std::uint32_t instance) {
    const block_changes::clear_guard whole(changes, {&instance, 1});
    for (auto each = blocks.begin(); each != blocks.end();) {
      const auto next = std::next(each);
      if (each->second.first == instance) remove(each->first);
      each = next;
    }
  }
  [[nodiscard]] std::set<change_list::name> names() const {
    std::set<change_list::name> all;
    for (const auto& [at, each] : blocks) all.insert(change_list::name_of(each.first, 0, each.second));
    return all;
  }

  std::map<block_place, std::pair<std::uint32_t, full_key>> blocks;
  block_changes changes;
  std::string model = "model";
  std::uint32_t groups = 1;
};

}  // namespace cenote::testing
