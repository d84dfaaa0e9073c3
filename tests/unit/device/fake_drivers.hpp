// The libraries of drivers without a device that lie beside the test program.
#pragma once

#include <string>

#include "tests/support/folders.hpp"

namespace cenote::testing {

inline const std::string fake_cuda = program_folder() / "libfake_cuda.so";
inline const std::string fake_cuda_12 = program_folder() / "libfake_cuda_12.so";
inline const std::string fake_cuda_no_batch = program_folder() / "libfake_cuda_no_batch.so";
inline const std::string fake_cuda_old = program_folder() / "libfake_cuda_old.so";
inline const std::string fake_nvml = program_folder() / "fake_nvml/libnvidia-ml.so.1";
inline const std::string fake_nvml_old = program_folder() / "fake_nvml_old/libnvidia-ml.so.1";

}  // namespace cenote::testing
