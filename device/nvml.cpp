#include "device/nvml.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <utility>

namespace cenote {

namespace {

// What is used of NVML is written down here, so that no header of it is needed; names, types and numbers are those of
// its API. The list without a version is the one that every driver has.
using nvml_device = struct nvml_device_tag*;
using nvml_result = int;
struct nvml_process {
  unsigned pid;
  unsigned long long used_bytes;
};

constexpr nvml_result success = 0;
constexpr nvml_result not_supported = 3;
constexpr nvml_result no_permission = 4;
constexpr nvml_result insufficient_size = 7;
constexpr nvml_result gpu_is_lost = 15;

constexpr std::size_t most_processes = 1 << 16;  // of a GPU
constexpr int attempts = 8;                      // while processes come

struct library_closer {
  void operator()(void* handle) const noexcept { ::dlclose(handle); }
};
using library_handle = std::unique_ptr<void, library_closer>;

struct functions {
  nvml_result (*init)() = nullptr;
  nvml_result (*shutdown)() = nullptr;
  nvml_result (*count)(unsigned*) = nullptr;
  nvml_result (*device)(unsigned, nvml_device*) = nullptr;
  nvml_result (*processes)(nvml_device, unsigned*, nvml_process*) = nullptr;
  const char* (*text)(nvml_result) = nullptr;
};

class nvml final : public gpu_processes {
 public:
  nvml(library_handle library, const functions& calls) : library_(std::move(library)), calls_(calls) {}
  nvml(const nvml&) = delete;
  nvml& operator=(const nvml&) = delete;
  ~nvml() override { calls_.shutdown(); }

  result<std::vector<pid_t>> list() override {
    unsigned devices = 0;
    if (const auto code = calls_.count(&devices); code != success) return refuse("nvmlDeviceGetCount", code);
    std::vector<pid_t> found;
    for (unsigned i = 0; i < devices; ++i) {
      if (const auto added = add_processes(i, found); !added) return std::unexpected(added.error());
    }
    return found;
  }

 private:
  result<void> add_processes(unsigned number, std::vector<pid_t>& out) {
    nvml_device device = nullptr;
    nvml_result code = calls_.device(number, &device);
    if (code == success) code = fill_table(device);
    if (code == not_supported || code == no_permission || code == gpu_is_lost) return {};
    if (code != success) return refuse("the processes of GPU " + std::to_string(number), code);
    for (const nvml_process& each : table_) out.push_back(static_cast<pid_t>(each.pid));
    return {};
  }

  nvml_result fill_table(nvml_device device) {
    std::size_t room = 64;
    for (int i = 0; i < attempts && room <= most_processes; ++i) {
      table_.resize(room);
      auto count = static_cast<unsigned>(room);
      const nvml_result code = calls_.processes(device, &count, table_.data());
      if (code == success) table_.resize(std::min<std::size_t>(count, room));
      if (code != insufficient_size) return code;
      room = std::max<std::size_t>(count, room) * 3 / 2;  // more may come until the next look
    }
    return insufficient_size;
  }

  [[nodiscard]] std::unexpected<error> refuse(const std::string& what, nvml_result code) const {
    const char* why = calls_.text(code);
    return fail(error_code::system,
                what + ": " + (why == nullptr ? "unknown" : why) + " (" + std::to_string(code) + ")");
  }

  library_handle library_;  // goes last
  functions calls_;
  std::vector<nvml_process> table_;
};

template <class Function>
void find(void* library, const char* name, Function& out, std::string& missing) {
  out = reinterpret_cast<Function>(::dlsym(library, name));
  if (out == nullptr && missing.empty()) missing = name;
}

}  // namespace

result<std::unique_ptr<gpu_processes>> open_nvml(const std::string& library) {
  library_handle handle(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL));
  if (!handle) {
    const char* why = ::dlerror();
    return fail(error_code::unsupported, std::string("no NVML: ") + (why == nullptr ? library : why));
  }
  functions calls;
  std::string missing;
  find(handle.get(), "nvmlInit_v2", calls.init, missing);
  find(handle.get(), "nvmlShutdown", calls.shutdown, missing);
  find(handle.get(), "nvmlDeviceGetCount_v2", calls.count, missing);
  find(handle.get(), "nvmlDeviceGetHandleByIndex_v2", calls.device, missing);
  find(handle.get(), "nvmlDeviceGetComputeRunningProcesses", calls.processes, missing);
  find(handle.get(), "nvmlErrorString", calls.text, missing);
  if (!missing.empty()) {
    return fail(error_code::unsupported, "NVML (" + library + ") has no " + missing + ": it is too old");
  }
  if (const nvml_result code = calls.init(); code != success) {
    const char* why = calls.text(code);
    return fail(error_code::unsupported, std::string("nvmlInit: ") + (why == nullptr ? "unknown" : why));
  }
  return std::make_unique<nvml>(std::move(handle), calls);
}

}  // namespace cenote
