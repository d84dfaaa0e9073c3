// Loops of a streaming copy, for a type that moves one cache line.
#pragma once

#include "core/copy_kernels.hpp"

// `Line` of an unnamed namespace: what is made of these templates then stays in the file that was built for it.
//
//   static void stream(std::byte* target, const std::byte* source)   64 bytes, the target aligned to them
//   static void fetch(const std::byte* source)                           a hint: the line will be read
//   static void fence()                                                      streamed before all that is stored later

namespace cenote::streaming {

inline constexpr size_t line_bytes = 64;
inline constexpr size_t page_bytes = 4096;
inline constexpr size_t fetched_lines = 8;  // of each page that comes next; also how far ahead a line is fetched

/// Copies groups of `Pages` pages, a line of each in turn: their TLB misses and first lines are waited for together,
/// and the processor's prefetchers see as many streams.
template <class Line, size_t Pages, cenote_fetch Fetch>
void copy_pages(std::byte* target, const std::byte* source, size_t groups) noexcept {
  constexpr size_t fetched_bytes = fetched_lines * line_bytes;
  for (; groups != 0; --groups, target += Pages * page_bytes, source += Pages * page_bytes) {
    for (size_t offset = 0; offset < page_bytes; offset += line_bytes) {
      const bool at_end = groups > 1 && offset >= page_bytes - fetched_bytes;
      for (size_t page = 0; page < Pages; ++page) {
        const std::byte* const line = source + page * page_bytes + offset;
        if constexpr (Fetch == cenote_fetch::next_pages) {
          if (at_end) Line::fetch(line + (Pages - 1) * page_bytes + fetched_bytes);
        }
        Line::stream(target + page * page_bytes + offset, line);
      }
    }
  }
}

template <class Line, cenote_fetch Fetch>
void copy_lines(std::byte* target, const std::byte* source, size_t lines) noexcept {
  for (; lines != 0; --lines, target += line_bytes, source += line_bytes) {
    if constexpr (Fetch != cenote_fetch::none) Line::fetch(source + fetched_lines * line_bytes);
    Line::stream(target, source);
  }
}

/// A cenote_copy_function: whole lines of the target are streamed, the edges are stored as usual.
template <class Line, size_t Pages, cenote_fetch Fetch>
void copy(std::byte* target, const std::byte* source, size_t bytes) noexcept {
  const size_t head = (line_bytes - reinterpret_cast<uintptr_t>(target) % line_bytes) % line_bytes;
  if (bytes < head + line_bytes) {
    __builtin_memcpy(target, source, bytes);
    return;
  }
  __builtin_memcpy(target, source, head);
  size_t done = head;
  if constexpr (Fetch != cenote_fetch::lines_ahead) {
    const size_t groups = (bytes - done) / (Pages * page_bytes);
    copy_pages<Line, Pages, Fetch>(target + done, source + done, groups);
    done += groups * Pages * page_bytes;
  }
  const size_t lines = (bytes - done) / line_bytes;
  copy_lines<Line, Fetch>(target + done, source + done, lines);
  done += lines * line_bytes;
  __builtin_memcpy(target + done, source + done, bytes - done);
  Line::fence();
}

template <class Line>
inline constexpr cenote_streaming_copy copies[cenote_streaming_copies] = {
    {1, cenote_fetch::none, copy<Line, 1, cenote_fetch::none>},
    {1, cenote_fetch::next_pages, copy<Line, 1, cenote_fetch::next_pages>},
    {1, cenote_fetch::lines_ahead, copy<Line, 1, cenote_fetch::lines_ahead>},
    {2, cenote_fetch::none, copy<Line, 2, cenote_fetch::none>},
    {2, cenote_fetch::next_pages, copy<Line, 2, cenote_fetch::next_pages>},
    {4, cenote_fetch::none, copy<Line, 4, cenote_fetch::none>},
    {4, cenote_fetch::next_pages, copy<Line, 4, cenote_fetch::next_pages>},
};

}  // namespace cenote::streaming
