// What a GPU does with a launch, for fake_cuda_run_kernels(): the kernel's loops on the processor.
#pragma once

#include <string_view>

#include "device/kernels.hpp"

namespace cenote::testing {

inline void run_kernel(const char* name, unsigned groups, unsigned threads, void* argument) {
  if (std::string_view(name) == "cenote_be_busy") return;
  const auto& move = *static_cast<const kernels::paged_move*>(argument);
  const std::string_view which = name;
  if (which == "cenote_move_16") kernels::cenote_move_16(move, groups, threads);
  if (which == "cenote_move_4") kernels::cenote_move_4(move, groups, threads);
  if (which == "cenote_move_1") kernels::cenote_move_1(move, groups, threads);
}

}  // namespace cenote::testing
