#include "tiers/nvme/entry_keys.hpp"

#include <algorithm>

namespace cenote::nvme {

void entry_keys::set(std::uint32_t number, std::uint32_t group, const full_key& full) {
  if (number >= heads_.size()) heads_.resize(number + 1);
  head& of = heads_[number];
  of.size = full.size;
  of.group = static_cast<std::uint8_t>(group);
  std::copy_n(full.bytes.begin(), half, of.bytes.begin());
  if (full.size <= half) {
    tails_.erase(number);
  } else {
    std::copy_n(full.bytes.begin() + half, half, tails_[number].begin());
  }
}

std::optional<entry_key> entry_keys::find(std::uint32_t number) const noexcept {
  if (number >= heads_.size() || heads_[number].size == 0) return std::nullopt;
  const head& of = heads_[number];
  entry_key found{.group = of.group, .full = {}};
  found.full.size = of.size;
  std::ranges::copy(of.bytes, found.full.bytes.begin());
  if (const auto tail = tails_.find(number); tail != tails_.end())
    std::ranges::copy(tail->second, found.full.bytes.begin() + half);
  return found;
}

void entry_keys::erase(std::uint32_t number) noexcept {
  if (number >= heads_.size()) return;
  if (heads_[number].size > half) tails_.erase(number);
  heads_[number].size = 0;
}

void entry_keys::clear() noexcept {
  heads_.clear();
  tails_.clear();
}

}  // namespace cenote::nvme
