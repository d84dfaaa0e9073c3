#include "memory/window.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "memory/segment.hpp"

namespace cenote::memory {

window::window(window&& other) noexcept {
  *this = std::move(other);
}

window& window::operator=(window&& other) noexcept {
  if (this == &other) return *this;
  unmap();
  fd_ = other.fd_;
  part_ = other.part_;
  mode_ = other.mode_;
  mappings_ = other.mappings_;
  count_ = std::exchange(other.count_, 0);
  base_.store(other.base_.exchange(nullptr));
  mapped_.store(other.mapped_.exchange(0));
  other.part_ = {};  // it cannot grow again
  return *this;
}

window::~window() {
  unmap();
}

void window::unmap() noexcept {
  for (const auto& each : std::span(mappings_).first(count_)) ::munmap(each.data(), each.size());
  count_ = 0;
}

result<window> window::open(const shared_file& file, file_part part, access mode, std::uint64_t bytes) {
  window made;
  made.fd_ = file.fd().get();
  made.part_ = part;
  made.mode_ = mode;
  if (auto mapped = made.map(bytes); !mapped) return std::unexpected(mapped.error());
  return made;
}

std::byte* window::grow(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  if (bytes > part_.bytes || offset > part_.bytes - bytes) return nullptr;
  const std::lock_guard lock(mutex_);
  const std::uint64_t have = mapped_.load(std::memory_order_relaxed);
  if (offset + bytes > have && !map(std::max(offset + bytes, 2 * have))) return nullptr;
  return base() + offset;
}

result<void> window::map(std::uint64_t bytes) const {
  const std::uint64_t size = std::min((bytes + page_bytes - 1) / page_bytes * page_bytes, part_.bytes);
  const int protection = mode_ == access::read_write ? PROT_READ | PROT_WRITE : PROT_READ;
  if (count_ == mappings_.size()) return fail(error_code::limit_exceeded, "a mapping has grown too often");
  void* address = ::mmap(nullptr, size, protection, MAP_SHARED | MAP_NORESERVE, fd_, static_cast<off_t>(part_.offset));
  if (address == MAP_FAILED) return fail_errno("mmap", std::to_string(size) + " bytes of shared memory");
  ::madvise(address, size, MADV_DONTDUMP);
  // The pid check of every call rests on it.
  if (mode_ == access::read_only) ::madvise(address, size, MADV_DONTFORK);
  mappings_[count_++] = {static_cast<std::byte*>(address), size};
  base_.store(static_cast<std::byte*>(address), std::memory_order_release);
  mapped_.store(size, std::memory_order_release);
  return {};
}

void window::populate(std::uint64_t offset, std::uint64_t bytes) const noexcept {
  std::byte* from = reach(offset, bytes);
  if (from != nullptr) populate_pages({from, bytes}, access::read_only);
}

}  // namespace cenote::memory
