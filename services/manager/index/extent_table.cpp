#include "services/manager/index/extent_table.hpp"

namespace cenote::manager {

std::optional<std::uint32_t> extent_table::add(const extent_info& info) {
  std::uint32_t extent = bound_;
  if (!unused_.empty()) {
    extent = unused_.back();
    unused_.pop_back();
  } else {
    if (bound_ == most_extents) return std::nullopt;
    entries_.reserve(std::size_t{bound_} + 1);
    unused_.reserve(entries_.capacity());  // so that erase() allocates nothing
    ++bound_;
  }
  extent_entry& entry = entries_[extent];
  entry.number.store(info.number, std::memory_order_release);
  entry.wrote_at.store(info.wrote_at, std::memory_order_release);
  entry.storage.store(info.storage, std::memory_order_release);
  entry.checksums.store(nullptr, std::memory_order_release);
  return extent;
}

void extent_table::set_checksums(std::uint32_t extent, const block_checksums& checksums) {
  entries_[extent].checksums.store(runs_.make(checksums), std::memory_order_release);
}

block_checksums extent_table::checksums(std::uint32_t extent, std::size_t blocks) const {
  const checksum_word* const run = entries_[extent].checksums.load(std::memory_order_relaxed);
  return run == nullptr ? block_checksums{} : checksum_runs::all(run, blocks);
}

void extent_table::erase(std::uint32_t extent) noexcept {
  if (checksum_word* const run = entries_[extent].checksums.exchange(nullptr, std::memory_order_acq_rel)) {
    runs_.release(run);
  }
  unused_.push_back(extent);
}

}  // namespace cenote::manager
