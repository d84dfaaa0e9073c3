#include "memory/block_record.hpp"

#include <algorithm>

namespace cenote::memory {

result<record_table> record_table::create() {
  auto memory = segment::create("cenote-records", segment_bytes);
  if (!memory) return std::unexpected(memory.error());
  write_header(*reinterpret_cast<segment_header*>(memory->data()), segment_kind::records, segment_bytes);
  return record_table(std::move(*memory));
}

result<record_table> record_table::open(unique_fd fd) {
  auto memory = segment::map(std::move(fd), segment_bytes, access::read_write);
  if (!memory) return std::unexpected(memory.error());
  const auto& header = *reinterpret_cast<const segment_header*>(memory->data());
  if (auto ok = check_header(header, segment_kind::records, segment_bytes); !ok) return std::unexpected(ok.error());
  return record_table(std::move(*memory));
}

std::uint32_t record_table::next_instance() const noexcept {
  const auto& header = *reinterpret_cast<const segment_header*>(memory_.data());
  // The last number is never given to an instance: it says that there are no more.
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(header.spare[0], 1, ~std::uint32_t{0}));
}

void record_table::note_instance(std::uint32_t number) const noexcept {
  auto& header = *reinterpret_cast<segment_header*>(memory_.data());
  shared_assign(header.spare[0], std::max<std::uint64_t>(header.spare[0], std::uint64_t{number} + 1),
                "records.next_instance"_point);
}

std::optional<std::uint32_t> range_allocator::allocate(std::uint32_t count) {
  for (auto hole = holes_.begin(); hole != holes_.end(); ++hole) {
    if (hole->second < count) continue;
    const std::uint32_t first = hole->first;
    const std::uint32_t rest = hole->second - count;
    holes_.erase(hole);
    if (rest > 0) holes_.emplace(first + count, rest);
    return first;
  }
  if (count > limit_ - end_) return std::nullopt;
  const std::uint32_t first = end_;
  end_ += count;
  return first;
}

void range_allocator::release(std::uint32_t first, std::uint32_t count) {
  auto next = holes_.lower_bound(first);
  if (next != holes_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == first) {
      first = before->first;
      count += before->second;
      holes_.erase(before);
    }
  }
  if (next != holes_.end() && first + count == next->first) {
    count += next->second;
    holes_.erase(next);
  }
  if (first + count == end_) {
    end_ = first;
  } else {
    holes_.emplace(first, count);
  }
}

bool range_allocator::claim(std::uint32_t first, std::uint32_t count) {
  if (count > limit_ || first > limit_ - count) return false;
  if (first >= end_) {
    if (first > end_) holes_.emplace(end_, first - end_);
    end_ = first + count;
    return true;
  }
  auto hole = holes_.upper_bound(first);
  if (hole == holes_.begin()) return false;
  --hole;
  const auto [hole_first, hole_count] = *hole;
  if (first + count > hole_first + hole_count) return false;
  holes_.erase(hole);
  if (first > hole_first) holes_.emplace(hole_first, first - hole_first);
  if (first + count < hole_first + hole_count) holes_.emplace(first + count, hole_first + hole_count - first - count);
  return true;
}

}  // namespace cenote::memory
