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
  return extent;
}

void extent_table::erase(std::uint32_t extent) noexcept {
  unused_.push_back(extent);
}

}  // namespace cenote::manager
