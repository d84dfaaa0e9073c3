// Where one tensor of an engine keeps its share of every page. Plain data: the C ABI and the kernels have the same.
#pragma once

#include <cstddef>
#include <cstdint>

namespace cenote {

/// What every page of an engine (a block of its own) has in one tensor: page i begins at base + i * block_stride and
/// consists of `runs` runs of `run_bytes` bytes, `run_stride` bytes apart.
struct strided_piece {
  std::byte* base = nullptr;
  std::uint64_t block_stride = 0;
  std::uint64_t run_bytes = 0;
  std::uint64_t runs = 1;
  std::uint64_t run_stride = 0;

  [[nodiscard]] constexpr std::uint64_t bytes() const noexcept { return run_bytes * runs; }
};

}  // namespace cenote
