// A GPU's share of a launch, for fake_cuda_run_kernels(): the kernel's loops on the processor.
#pragma once

#include <string_view>

#include "device/kernels.hpp"
#include "tests/support/fake_cuda.h"

namespace cenote::testing {

inline void run_kernel(const char* name, unsigned groups, unsigned threads, void* argument) {
  if (std::string_view(name) == "cenote_be_busy") return;
  const auto& move = *static_cast<const kernels::paged_move*>(argument);
  const std::string_view which = name;
  if (which == "cenote_move_16") kernels::cenote_move_16(move, groups, threads);
  if (which == "cenote_move_4") kernels::cenote_move_4(move, groups, threads);
  if (which == "cenote_move_1") kernels::cenote_move_1(move, groups, threads);
}

/// The cost of such a launch to a GPU, for fake_cuda_begin_time(): host memory is as far away as the link makes it, and
/// a group holds a multiprocessor.
inline fake_cuda_cost kernel_cost(const char* name, unsigned groups, void* argument) {
  constexpr double all = 132;
  constexpr double start = 3000;
  const double held = groups < all ? groups : all;
  if (std::string_view(name) == "cenote_be_busy") {
    return {start + static_cast<double>(static_cast<const kernels::busy_work*>(argument)->rounds), all};
  }
  const auto& move = *static_cast<const kernels::paged_move*>(argument);
  double bytes = 0;
  for (std::uint32_t i = 0; i < move.piece_count; ++i) bytes += static_cast<double>(move.pieces[i].bytes());
  bytes *= move.block_count;
  const std::byte* const block = move.blocks != nullptr ? move.blocks[0] : move.rows + move.offsets[0];
  return {start + bytes * (fake_cuda_is_device(block) != 0 ? 0.001 : 0.0198), held};
}

}  // namespace cenote::testing
