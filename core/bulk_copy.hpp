// memcpy for whole blocks: by the routine that was measured to be the fastest on this machine, see machine_choice.hpp.
#pragma once

#include <cstddef>

#include "core/machine_choice.hpp"

namespace cenote {

/// Copies `bytes` between memories that do not overlap. When it returns, the bytes are ordered before every later store
/// of this thread, as after memcpy. Thread-safe.
void bulk_copy(std::byte* target, const std::byte* source, std::size_t bytes, copy_direction direction) noexcept;

/// The same by that routine whatever the size: for a piece of a large copy. Below 1 KiB plain memcpy is faster.
void bulk_copy_piece(std::byte* target, const std::byte* source, std::size_t bytes, copy_direction direction) noexcept;

}  // namespace cenote
