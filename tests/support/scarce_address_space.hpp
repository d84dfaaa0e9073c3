// A limit of address space, as long as an object lives.
#pragma once

#include <malloc.h>
#include <sys/resource.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "memory/segment.hpp"

namespace cenote::testing {

/// Bytes.
inline std::uint64_t address_space() {
  std::uint64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * memory::page_bytes;
}

/// The sanitizers map memory of their own at any time, and give up when they cannot.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool can_be_scarce = false;
#else
inline constexpr bool can_be_scarce = true;
#endif

/// What they may map meanwhile, bytes.
inline constexpr std::uint64_t of_sanitizers = can_be_scarce ? 0 : std::uint64_t{8} << 30;

/// Leaves the process `bytes` more address space; what the heap needs is set aside before.
class scarce_address_space {
 public:
  explicit scarce_address_space(std::uint64_t bytes) {
    ::mallopt(M_MMAP_THRESHOLD, 1 << 30);
    ::mallopt(M_TRIM_THRESHOLD, 1 << 30);
    std::free(std::malloc(std::size_t{64} << 20));
    ::getrlimit(RLIMIT_AS, &before_);
    const rlimit tight{address_space() + bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_AS, &tight);
  }
  ~scarce_address_space() { ::setrlimit(RLIMIT_AS, &before_); }
  scarce_address_space(const scarce_address_space&) = delete;
  scarce_address_space& operator=(const scarce_address_space&) = delete;

 private:
  rlimit before_{};
};

}  // namespace cenote::testing
