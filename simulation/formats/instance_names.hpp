// Instances of a trace: their numbers and names, and ids that two of them never share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "simulation/formats/format.hpp"
#include "simulation/formats/key_numbers.hpp"

namespace cenote::formats {

/// Numbers instances from 0 as they first come, and gives each key of each of them an id of its own. Not thread-safe.
class instance_names {
 public:
  /// A new name is appended to the target's.
  [[nodiscard]] std::uint32_t number(std::string_view name, line_requests& target) {
    const auto [place, is_new] = names_.try_emplace(std::string(name), static_cast<std::uint32_t>(names_.size()));
    if (is_new) target.instances.emplace_back(name);
    return place->second;
  }
  /// Makes ids of the target's keys from `first` on, which are the instance's.
  void separate(std::uint32_t instance, line_requests& target, std::size_t first) {
    const std::uint64_t scope = target.sharing == key_sharing::among_instances ? 0 : instance;
    for (std::uint64_t& key : std::span(target.ids).subspan(first)) key = keys_.number(scope, key);
  }

 private:
  std::unordered_map<std::string, std::uint32_t> names_;
  key_numbers keys_;
};

}  // namespace cenote::formats
