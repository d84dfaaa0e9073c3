#include "tiers/nvme/request_queue.hpp"

#include <cerrno>

#include "tiers/nvme/path_file.hpp"

namespace cenote::nvme {

void request_queue::push(std::span<const io_request> batch) {
  for (const io_request& each : batch) of(each.kind).push_back(each);
}

const io_request* request_queue::front() const noexcept {
  if (!reads_.empty()) return &reads_.front();
  return writes_.empty() ? nullptr : &writes_.front();
}

std::optional<io_request> request_queue::pop() {
  const io_request* next = front();
  if (next == nullptr) return std::nullopt;
  const io_request out = *next;
  of(out.kind).pop_front();
  return out;
}

void request_queue::append(request_queue& other) {
  // One after the other: for want of memory the first may have moved and the second not.
  reads_.insert(reads_.end(), other.reads_.begin(), other.reads_.end());
  other.reads_.clear();
  writes_.insert(writes_.end(), other.writes_.begin(), other.writes_.end());
  other.writes_.clear();
}

int refusal_of(const io_request& request, std::uint64_t file_bytes) noexcept {
  const std::uint64_t bytes = request.memory.size();
  const auto address = reinterpret_cast<std::uintptr_t>(request.memory.data());
  if (bytes == 0 || (bytes | request.offset | address) % sector_bytes != 0) return EINVAL;
  // The superblock is nobody's block, and a write past the end would make the file grow.
  if (request.offset < path_file::data_offset || bytes > file_bytes || request.offset > file_bytes - bytes) {
    return EINVAL;
  }
  return 0;
}

}  // namespace cenote::nvme
