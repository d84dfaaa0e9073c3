// Copies between an engine's memory and blocks: many pieces of any strides, in several threads, one pass over memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cenote::client {

/// What every block of an engine has in one tensor: block i begins at base + i * block_stride and consists of `runs`
/// runs of `run_bytes` bytes, `run_stride` bytes apart.
struct strided_piece {
  std::byte* base = nullptr;
  std::uint64_t block_stride = 0;
  std::uint64_t run_bytes = 0;
  std::uint64_t runs = 1;
  std::uint64_t run_stride = 0;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return run_bytes * runs; }
};

/// blocks[i] ← the pieces of the engine's block indices[i], back to back in their order. `threads`: at most; 0: as many
/// as there are cores, four at most. The same thread-safety as memcpy.
void gather(std::span<const strided_piece> pieces, std::span<const std::uint64_t> indices,
            std::span<std::byte* const> blocks, unsigned threads);

/// The pieces of the engine's block indices[i] ← blocks[i]: gather the other way round.
void scatter(std::span<const strided_piece> pieces, std::span<const std::uint64_t> indices,
             std::span<const std::byte* const> blocks, unsigned threads);

/// to[i] ← bytes[i] bytes at from[i]. None may overlap another.
void copy_each(std::span<std::byte* const> to, std::span<const std::byte* const> from,
               std::span<const std::uint64_t> bytes, unsigned threads);

}  // namespace cenote::client
