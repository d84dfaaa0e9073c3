#include "core/huge_vector.hpp"

#include <sys/mman.h>

#include <cstdint>

namespace cenote::huge_pages {

namespace {

std::size_t whole(std::size_t bytes) noexcept {
  return (bytes + size - 1) / size * size;
}

}  // namespace

void* map(std::size_t bytes) {
  const std::size_t mapped = whole(bytes) + size;  // so that a boundary lies within the first `size`
  void* const at = ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) throw std::bad_alloc();
  auto* const begin = static_cast<std::byte*>(at);
  const std::size_t before = (size - reinterpret_cast<std::uintptr_t>(at) % size) % size;
  if (before > 0) ::munmap(begin, before);
  ::munmap(begin + before + whole(bytes), size - before);
  ::madvise(begin + before, whole(bytes), MADV_HUGEPAGE);  // a wish
  return begin + before;
}

void unmap(void* address, std::size_t bytes) noexcept {
  ::munmap(address, whole(bytes));
}

}  // namespace cenote::huge_pages
