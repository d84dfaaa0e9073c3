#include "tests/support/allocations.hpp"

#include <malloc.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace cenote::test {

namespace {

thread_local constinit allocation_counts counts{};
constinit std::atomic<allocation_fault> current_fault = nullptr;

void* allocate(std::size_t size, std::size_t alignment) noexcept {
  const allocation_fault fault = current_fault.load(std::memory_order_relaxed);
  if (fault != nullptr && fault()) return nullptr;
  if (size == 0) size = 1;
  void* const memory = alignment <= alignof(std::max_align_t)
                           ? std::malloc(size)
                           : std::aligned_alloc(alignment, (size + alignment - 1) / alignment * alignment);
  if (memory == nullptr) return nullptr;
  ++counts.calls;
  counts.live_bytes += static_cast<std::int64_t>(::malloc_usable_size(memory));
  return memory;
}

void* allocate_or_throw(std::size_t size, std::size_t alignment) {
  void* const memory = allocate(size, alignment);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

void release(void* memory) noexcept {
  if (memory != nullptr) counts.live_bytes -= static_cast<std::int64_t>(::malloc_usable_size(memory));
  std::free(memory);
}

}  // namespace

allocation_counts allocations() noexcept {
  return counts;
}

void set_allocation_fault(allocation_fault fault) noexcept {
  current_fault.store(fault);
}

}  // namespace cenote::test

// Not inlined: g++ would see free() called on what `new` gave. The forms for arrays end in these.
[[gnu::noinline]] void* operator new(std::size_t size) {
  return cenote::test::allocate_or_throw(size, 1);
}
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t alignment) {
  return cenote::test::allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
// The standard library's algorithms ask for their buffers so, and give them back to the `delete` below.
[[gnu::noinline]] void* operator new(std::size_t size, const std::nothrow_t& /*tag*/) noexcept {
  return cenote::test::allocate(size, 1);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  cenote::test::release(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/) noexcept {
  cenote::test::release(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t /*alignment*/) noexcept {
  cenote::test::release(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*size*/, std::align_val_t /*alignment*/) noexcept {
  cenote::test::release(memory);
}
