#include "services/manager/index/spec_sets.hpp"

namespace cenote::manager {

std::optional<std::uint16_t> spec_sets::number_of(std::uint64_t mask) {
  if (const auto entry = numbers_.find(mask); entry != numbers_.end()) return entry->second;
  const std::size_t number = numbers_.size();
  if (number == most_spec_sets) return std::nullopt;
  masks_.reserve(number + 1);
  numbers_.emplace(mask, static_cast<std::uint16_t>(number));
  masks_[static_cast<std::uint32_t>(number)].store(mask, std::memory_order_relaxed);
  return static_cast<std::uint16_t>(number);
}

}  // namespace cenote::manager
