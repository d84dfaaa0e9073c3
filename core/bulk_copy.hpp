// memcpy for whole blocks: past the caches where that is faster.
#pragma once

#include <cstddef>

namespace cenote {

/// Copies `bytes` between memories that do not overlap. When it returns, the bytes are ordered before every later store
/// of this thread, as after memcpy. Thread-safe.
void bulk_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;

/// The same past the caches whatever the size: for a small piece of a large copy. Below 1 KiB plain memcpy is faster.
void streaming_copy(std::byte* target, const std::byte* source, std::size_t bytes) noexcept;

}  // namespace cenote
