// Copies between an engine's memory and blocks by the processor: many pieces of any strides, in several threads, one
// pass over memory. What the kernels of a GPU must agree with, bit by bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "device/strided_piece.hpp"

namespace cenote::transform {

/// blocks[i] ← the pieces of the engine's page indices[i], back to back in their order, from byte `block_offset` of the
/// block on. `threads`: at most; 0: as many as there are cores, four at most. The same thread-safety as memcpy.
void gather(std::span<const strided_piece> pieces, std::span<const std::uint64_t> indices,
            std::span<std::byte* const> blocks, unsigned threads, std::uint64_t block_offset = 0);

/// The pieces of the engine's page indices[i] ← blocks[i]: gather the other way round.
void scatter(std::span<const strided_piece> pieces, std::span<const std::uint64_t> indices,
             std::span<const std::byte* const> blocks, unsigned threads, std::uint64_t block_offset = 0);

/// to[i] ← bytes[i] bytes at from[i]. None may overlap another.
void copy_each(std::span<std::byte* const> to, std::span<const std::byte* const> from,
               std::span<const std::uint64_t> bytes, unsigned threads);

}  // namespace cenote::transform
