// An index for tests, with names for what its calls need.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "services/manager/index/instance_index.hpp"

namespace cenote::manager::test {

using enum location_state;

/// Extents are numbered 100, 101, … in the fleet.
struct index_world {
  instance_index index{0x1234'5678'9abc'def1U};
  read_order order{};
  lookup_answer answer{};
  std::uint64_t numbers = 100;

  std::uint32_t extent(std::uint8_t storage, std::uint32_t wrote_at = 7) {
    return index.extents().add({.number = numbers++, .wrote_at = wrote_at, .storage = storage}).value();
  }
  std::uint32_t record(std::uint64_t key, std::uint32_t parent = no_record) {
    const std::uint32_t present = index.find({.low = key});
    return present != no_record ? present : index.add({.low = key}, parent);
  }
  /// The position is the key.
  std::uint32_t put(std::uint64_t key, std::uint32_t extent, location_state state = serving, std::uint64_t specs = 1) {
    const std::uint32_t number = record(key);
    index.add_location(number, {.extent = extent,
                                .position = static_cast<std::uint16_t>(key),
                                .state = state,
                                .set = index.sets().number_of(specs).value()});
    return number;
  }
  std::size_t match(const std::vector<cache_key>& keys, const prefix_rule& rule = {}) {
    const std::size_t hits = index.match_prefix(keys, order, rule, answer);
    std::vector<std::uint32_t> records;
    const bool is_same = index.count_prefix(keys, order, rule, records) == hits && answer.keys.size() == hits &&
                         std::ranges::equal(records, answer.keys, {}, {}, &found_key::record);
    return is_same ? hits : SIZE_MAX;
  }
  std::vector<found_part> parts(std::size_t key) const {
    const found_key& entry = answer.keys.at(key);
    return {answer.parts.begin() + entry.first_part, answer.parts.begin() + entry.first_part + entry.parts};
  }
  std::vector<found_part> parts_of(std::uint64_t key) {
    index.read_each(std::vector{cache_key{.low = key}}, order, answer);
    return parts(0);
  }
};

/// Keys `first`, `first` + 1, …
inline std::vector<cache_key> row(std::uint64_t first, std::size_t count) {
  std::vector<cache_key> keys;
  for (std::size_t i = 0; i < count; ++i) keys.push_back({.low = first + i});
  return keys;
}

}  // namespace cenote::manager::test
