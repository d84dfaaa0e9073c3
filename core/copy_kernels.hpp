// Copies that stream past the caches, for each set of instructions. Each kernel's file is built with flags of its own
// and so includes nothing else: see checksum_kernels.hpp.
#pragma once

#include <stddef.h>  // NOLINT(modernize-deprecated-headers)
#include <stdint.h>  // NOLINT(modernize-deprecated-headers)
#include <cstddef>   // std::byte; none of its inline functions is used

/// A copy_function, see copy_routines.hpp.
using cenote_copy_function = void (*)(std::byte* target, const std::byte* source, size_t bytes) noexcept;

/// Where a streaming copy fetches its source from ahead of time.
enum class cenote_fetch : uint8_t {
  none,        ///< nowhere: the processor's own prefetchers alone
  next_pages,  ///< the first lines of the pages that come next, for a prefetcher stops at the end of a page
  lines_ahead  ///< each line, some lines before it is read
};

/// One way to stream: how many pages side by side, and what is fetched ahead.
struct cenote_streaming_copy {
  uint8_t pages;
  cenote_fetch fetch;
  cenote_copy_function run;
};

inline constexpr size_t cenote_streaming_copies = 7;  ///< in the table of each set of instructions

extern "C" {
#if defined(__x86_64__)
const cenote_streaming_copy* cenote_copies_avx2() noexcept;
const cenote_streaming_copy* cenote_copies_avx512() noexcept;
#elif defined(__aarch64__)
const cenote_streaming_copy* cenote_copies_neon() noexcept;
#endif
}
