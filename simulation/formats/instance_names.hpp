// Instances of a trace: their numbers and names, and ids that two of them never share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "core/checksum.hpp"
#include "simulation/formats/format.hpp"
#include "simulation/formats/key_numbers.hpp"

namespace cenote::formats {

/// Numbers instances from 0 as they first come, and gives each key of each of them an id of its own. Where keys are
/// hashed, instances from the 65,536th on have one number, and still no key in common. Not thread-safe.
class instance_names {
 public:
  /// A new name is appended to the target's.
  [[nodiscard]] std::uint32_t number(std::string_view name, line_requests& target) {
    scope_ = target.naming == key_naming::hashed ? checksum_of(name.data(), name.size()) : 0;
    if (target.naming == key_naming::hashed && names_.size() == most_hashed && !names_.contains(std::string(name)))
      return most_hashed - 1;
    const auto [place, is_new] = names_.try_emplace(std::string(name), static_cast<std::uint32_t>(names_.size()));
    if (is_new) target.instances.emplace_back(name);
    return place->second;
  }
  /// Makes ids of the target's keys from `first` on, which are those of the instance that number() gave last.
  void separate(std::uint32_t instance, line_requests& target, std::size_t first) {
    const std::uint64_t own = target.naming == key_naming::hashed ? scope_ : instance;
    const std::uint64_t scope = target.sharing == key_sharing::among_instances ? 0 : own;
    for (std::uint64_t& key : std::span(target.ids).subspan(first)) key = keys_.number(scope, key, target.naming);
  }

 private:
  static constexpr std::uint32_t most_hashed = 65'536;

  std::unordered_map<std::string, std::uint32_t> names_;
  std::uint64_t scope_ = 0;  ///< of the instance that number() gave last, where keys are hashed
  key_numbers keys_;
};

}  // namespace cenote::formats
