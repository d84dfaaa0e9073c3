#include "tiers/nvme/entry_table.hpp"

namespace cenote::nvme {

namespace {

constexpr std::size_t first_slots = 1024;
// Linear probing stays short below this; growing by half keeps the table close to it.
constexpr double most_load = 0.8;

}  // namespace

std::size_t entry_table::home(std::uint16_t instance, std::uint64_t key_lo) const noexcept {
  __extension__ using wide = unsigned __int128;
  const std::uint64_t mixed = (key_lo ^ instance) * 0x9e3779b97f4a7c15ULL;
  return static_cast<std::size_t>((static_cast<wide>(mixed) * slots_.size()) >> 64);
}

std::optional<std::uint32_t> entry_table::find(std::uint16_t instance, const block_key& key) const noexcept {
  if (slots_.empty()) return std::nullopt;
  for (std::size_t at = home(instance, key.lo); slots_[at] != nothing; at = at + 1 == slots_.size() ? 0 : at + 1) {
    const block_entry& entry = entries_[slots_[at]];
    if (entry.key_lo == key.lo && entry.key_hi == key.hi && entry.instance == instance) return slots_[at];
  }
  return std::nullopt;
}

void entry_table::place(std::uint32_t number) noexcept {
  std::size_t at = home(entries_[number].instance, entries_[number].key_lo);
  while (slots_[at] != nothing) at = at + 1 == slots_.size() ? 0 : at + 1;
  slots_[at] = number;
}

void entry_table::grow() {
  const std::size_t wanted = slots_.empty() ? first_slots : slots_.size() + slots_.size() / 2;
  slots_ = std::vector<std::uint32_t>();  // the old one goes first: everything in it is in the entries
  slots_.resize(wanted, nothing);
  for (std::uint32_t number = 0; number < entries_.size(); ++number) {
    if (entries_[number].sectors != 0) place(number);
  }
}

std::uint32_t entry_table::add(const block_entry& entry) {
  if (static_cast<double>(live_ + 1) > static_cast<double>(slots_.size()) * most_load) grow();
  std::uint32_t number = 0;
  if (free_.empty()) {
    number = static_cast<std::uint32_t>(entries_.size());
    entries_.push_back(entry);
  } else {
    number = free_.back();
    free_.pop_back();
    entries_[number] = entry;
  }
  place(number);
  ++live_;
  return number;
}

void entry_table::erase(std::uint32_t number) {
  std::size_t hole = home(entries_[number].instance, entries_[number].key_lo);
  while (slots_[hole] != number) hole = hole + 1 == slots_.size() ? 0 : hole + 1;
  // Moves later entries of the run back, so that no marks of deleted ones are needed.
  for (std::size_t at = hole;;) {
    at = at + 1 == slots_.size() ? 0 : at + 1;
    if (slots_[at] == nothing) break;
    const std::size_t wants = home(entries_[slots_[at]].instance, entries_[slots_[at]].key_lo);
    const bool stays = hole < at ? hole < wants && wants <= at : hole < wants || wants <= at;
    if (stays) continue;
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = nothing;
  entries_[number] = {};
  free_.push_back(number);
  --live_;
}

}  // namespace cenote::nvme
