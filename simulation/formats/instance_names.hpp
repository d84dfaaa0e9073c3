// Instances of a trace: their numbers, and ids that two of them never share.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "simulation/formats/key_numbers.hpp"

namespace cenote::formats {

/// Numbers instances from 0 as they first come, and gives each key of each of them an id of its own. Not thread-safe.
class instance_names {
 public:
  [[nodiscard]] std::uint32_t number(std::string_view name) {
    return names_.try_emplace(std::string(name), static_cast<std::uint32_t>(names_.size())).first->second;
  }
  void separate(std::uint32_t instance, std::span<std::uint64_t> keys) {
    for (std::uint64_t& key : keys) key = keys_.number(instance, key);
  }

 private:
  std::unordered_map<std::string, std::uint32_t> names_;
  key_numbers keys_;
};

}  // namespace cenote::formats
