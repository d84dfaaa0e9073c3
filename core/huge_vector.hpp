// A vector for millions of elements.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <vector>

namespace cenote {

namespace huge_pages {

constexpr std::size_t size = std::size_t{2} << 20;
constexpr std::size_t least = size / 2;  ///< bytes for which they are worth it

/// Memory of its own, not malloc's, whose trimming cuts huge pages into small ones. Throws std::bad_alloc.
[[nodiscard]] void* map(std::size_t bytes);
void unmap(void* address, std::size_t bytes) noexcept;

}  // namespace huge_pages

/// Asks the kernel for huge pages, where much is allocated: it hands out memory that is written to for the first time
/// page by page, and small ones cost more than what is then written.
template <class T>
struct huge_allocator {
  using value_type = T;

  huge_allocator() = default;
  template <class U>
  explicit(false) huge_allocator(const huge_allocator<U>& /*other*/) noexcept {}

  T* allocate(std::size_t count) {
    if (count > std::numeric_limits<std::size_t>::max() / 2 / sizeof(T)) throw std::bad_array_new_length();
    const std::size_t bytes = count * sizeof(T);
    return static_cast<T*>(bytes < huge_pages::least ? ::operator new(bytes) : huge_pages::map(bytes));
  }
  void deallocate(T* address, std::size_t count) noexcept {
    const std::size_t bytes = count * sizeof(T);
    if (bytes < huge_pages::least) {
      ::operator delete(address);
    } else {
      huge_pages::unmap(address, bytes);
    }
  }

  bool operator==(const huge_allocator& /*other*/) const noexcept { return true; }
};

template <class T>
using huge_vector = std::vector<T, huge_allocator<T>>;

}  // namespace cenote
