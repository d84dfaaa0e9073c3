// Makes of fake_cuda.c a driver that a program can open as libcuda.so.1: with kernels, and without being asked.
#include "tests/support/fake_cuda.h"
#include "tests/support/fake_cuda_kernels.hpp"

extern "C" {
/// For fake_cuda_run_kernels(), when they have been switched off.
void fake_cuda_kernels_on_processor(const char* name, unsigned groups, unsigned threads, void* argument) {
  cenote::testing::run_kernel(name, groups, threads, argument);
}
}

namespace {

[[gnu::constructor]] void begin() {
  fake_cuda_run_kernels(fake_cuda_kernels_on_processor);
}

}  // namespace
