// Which processes still have a context on a GPU: the driver's own list, by NVML, which is loaded while the program
// runs.
#pragma once

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "core/error.hpp"

namespace cenote {

/// Used by one thread, which may have to wait for the driver, for as long as that takes.
class gpu_processes {
 public:
  gpu_processes() = default;
  gpu_processes(const gpu_processes&) = delete;
  gpu_processes& operator=(const gpu_processes&) = delete;
  virtual ~gpu_processes() = default;

  /// All processes that have a compute context on any GPU, by the pids that the driver knows them by. A GPU that tells
  /// nobody has none. Errors: system.
  [[nodiscard]] virtual result<std::vector<pid_t>> list() = 0;
};

/// Errors: unsupported: there is no such library, it lacks a function (which is named), or it finds no driver.
[[nodiscard]] result<std::unique_ptr<gpu_processes>> open_nvml(const std::string& library = "libnvidia-ml.so.1");

}  // namespace cenote
