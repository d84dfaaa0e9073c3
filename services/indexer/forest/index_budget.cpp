#include "services/indexer/forest/index_budget.hpp"

#include <malloc.h>

#include "core/huge_vector.hpp"

namespace cenote::indexer {

namespace {

// Huge pages where they are filled, or nearly.
bool is_huge(std::size_t bytes) noexcept {
  return bytes >= 4 * huge_pages::size || (bytes > 0 && bytes % huge_pages::size == 0);
}

std::size_t whole_pages(std::size_t bytes) noexcept {
  return (bytes + huge_pages::size - 1) / huge_pages::size * huge_pages::size;
}

void* map_pages(std::size_t bytes) noexcept {
  try {
    return huge_pages::map(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

}  // namespace

void* index_budget::allocate(std::size_t bytes, std::size_t reserve) noexcept {
  const bool is_large = is_huge(bytes);
  const std::size_t least = (is_large ? whole_pages(bytes) : bytes) + reserve;
  if (least > limit_ || used() > limit_ - least) return nullptr;
  if (is_large) {
    void* const pages = map_pages(bytes);
    if (pages != nullptr) count(whole_pages(bytes));
    return pages;
  }
  void* const memory = ::operator new(bytes, std::nothrow);
  if (memory == nullptr) return nullptr;
  const std::size_t usable = ::malloc_usable_size(memory);
  if (usable > limit_ - used()) {
    ::operator delete(memory);
    return nullptr;
  }
  count(usable);
  return memory;
}

void index_budget::release(void* memory, std::size_t bytes) noexcept {
  if (memory == nullptr) return;
  if (is_huge(bytes)) {
    count(-whole_pages(bytes));
    huge_pages::unmap(memory, bytes);
  } else {
    count(-::malloc_usable_size(memory));
    ::operator delete(memory);
  }
}

}  // namespace cenote::indexer
