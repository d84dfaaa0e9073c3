// CUDA's driver, loaded while the program runs: it starts and works without one. What is used of it is written down
// here, so that no header of CUDA is needed; names, types and numbers are those of the driver API.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "core/error.hpp"

namespace cenote::cuda {

using cu_result = int;
using cu_device = int;
using cu_pointer = std::byte*;  // the driver's type is an integer of the same size, passed in the same register
using cu_allocation = unsigned long long;
using cu_context = struct cu_context_tag*;
using cu_stream = struct cu_stream_tag*;
using cu_event = struct cu_event_tag*;
using cu_module = struct cu_module_tag*;
using cu_function = struct cu_function_tag*;

struct cu_uuid {
  unsigned char bytes[16];
};
struct cu_location {
  int type;  // 1: a device
  int id;
};
struct cu_allocation_properties {
  int type;          // 1: pinned
  int handle_types;  // 1: a descriptor
  cu_location location;
  void* unused;
  unsigned char flags[8];
};
struct cu_access {
  cu_location location;
  int flags;  // 3: read and write
};
struct cu_side {  // of a copy of rows
  std::size_t x = 0;
  std::size_t y = 0;
  int type = 4;  // an address, of whatever memory
  void* host = nullptr;
  cu_pointer address = nullptr;
  void* array = nullptr;
  std::size_t pitch = 0;
};
struct cu_rows {
  cu_side source;
  cu_side target;
  std::size_t width = 0;
  std::size_t height = 0;
};
struct cu_batch_attributes {
  int order = 1;  // sources are read in the stream's order
  cu_location source_hint{};
  cu_location target_hint{};
  unsigned flags = 1;  // rather beside what the GPU computes
};

// The symbols with the version of their signature, and what they take.
#define CENOTE_CUDA_FUNCTIONS(X)                                                                                  \
  X(cuInit, unsigned)                                                                                             \
  X(cuDriverGetVersion, int*)                                                                                     \
  X(cuGetErrorName, cu_result, const char**)                                                                      \
  X(cuDeviceGetCount, int*)                                                                                       \
  X(cuDeviceGet, cu_device*, int)                                                                                 \
  X(cuDeviceGetUuid, cu_uuid*, cu_device)                                                                         \
  X(cuDeviceGetName, char*, int, cu_device)                                                                       \
  X(cuDeviceGetAttribute, int*, int, cu_device)                                                                   \
  X(cuDevicePrimaryCtxRetain, cu_context*, cu_device)                                                             \
  X(cuDevicePrimaryCtxRelease_v2, cu_device)                                                                      \
  X(cuCtxPushCurrent_v2, cu_context)                                                                              \
  X(cuCtxPopCurrent_v2, cu_context*)                                                                              \
  X(cuCtxSynchronize)                                                                                             \
  X(cuCtxGetStreamPriorityRange, int*, int*)                                                                      \
  X(cuStreamCreateWithPriority, cu_stream*, unsigned, int)                                                        \
  X(cuStreamIsCapturing, cu_stream, int*)                                                                         \
  X(cuThreadExchangeStreamCaptureMode, int*)                                                                      \
  X(cuStreamDestroy_v2, cu_stream)                                                                                \
  X(cuStreamWaitEvent, cu_stream, cu_event, unsigned)                                                             \
  X(cuEventCreate, cu_event*, unsigned)                                                                           \
  X(cuEventDestroy_v2, cu_event)                                                                                  \
  X(cuEventRecord, cu_event, cu_stream)                                                                           \
  X(cuEventQuery, cu_event)                                                                                       \
  X(cuMemcpyAsync, cu_pointer, const std::byte*, std::size_t, cu_stream)                                          \
  X(cuMemcpy2DAsync_v2, const cu_rows*, cu_stream)                                                                \
  X(cuMemsetD8_v2, cu_pointer, unsigned char, std::size_t)                                                        \
  X(cuMemAlloc_v2, cu_pointer*, std::size_t)                                                                      \
  X(cuMemFree_v2, cu_pointer)                                                                                     \
  X(cuMemHostAlloc, void**, std::size_t, unsigned)                                                                \
  X(cuMemFreeHost, void*)                                                                                         \
  X(cuMemHostRegister_v2, void*, std::size_t, unsigned)                                                           \
  X(cuMemHostUnregister, void*)                                                                                   \
  X(cuMemGetAllocationGranularity, std::size_t*, const cu_allocation_properties*, int)                            \
  X(cuMemCreate, cu_allocation*, std::size_t, const cu_allocation_properties*, unsigned long long)                \
  X(cuMemRelease, cu_allocation)                                                                                  \
  X(cuMemAddressReserve, cu_pointer*, std::size_t, std::size_t, cu_pointer, unsigned long long)                   \
  X(cuMemAddressFree, cu_pointer, std::size_t)                                                                    \
  X(cuMemMap, cu_pointer, std::size_t, std::size_t, cu_allocation, unsigned long long)                            \
  X(cuMemUnmap, cu_pointer, std::size_t)                                                                          \
  X(cuMemSetAccess, cu_pointer, std::size_t, const cu_access*, std::size_t)                                       \
  X(cuMemExportToShareableHandle, void*, cu_allocation, int, unsigned long long)                                  \
  X(cuMemImportFromShareableHandle, cu_allocation*, std::intptr_t, int)                                           \
  X(cuModuleLoadData, cu_module*, const void*)                                                                    \
  X(cuModuleUnload, cu_module)                                                                                    \
  X(cuModuleGetFunction, cu_function*, cu_module, const char*)                                                    \
  X(cuLaunchKernel, cu_function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, cu_stream, \
    void**, void**)

// Functions that drivers may lack. Batches of copies: since CUDA 12.8 with the place of a failure, from 13 on without.
#define CENOTE_CUDA_OPTIONAL_FUNCTIONS(X)                                                                        \
  X(cuMemcpyBatchAsync, cu_pointer*, cu_pointer*, std::size_t*, std::size_t, cu_batch_attributes*, std::size_t*, \
    std::size_t, std::size_t*, cu_stream)                                                                        \
  X(cuMemcpyBatchAsync_v2, const cu_pointer*, const cu_pointer*, const std::size_t*, std::size_t,                \
    cu_batch_attributes*, std::size_t*, std::size_t, cu_stream)

inline constexpr cu_result success = 0;
inline constexpr cu_result not_ready = 600;
inline constexpr int relaxed_capture = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED
// Attributes of a device.
inline constexpr int multiprocessor_count = 16;
inline constexpr int uses_host_pointers = 91;  // CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM

template <class... Arguments>
using cu_call = cu_result (*)(Arguments...);

/// The functions of one loaded driver. Immutable; stays loaded until the process ends, as the driver asks for.
struct driver {
#define CENOTE_CUDA_MEMBER(name, ...) cu_call<__VA_ARGS__> name = nullptr;
  CENOTE_CUDA_FUNCTIONS(CENOTE_CUDA_MEMBER)
  CENOTE_CUDA_OPTIONAL_FUNCTIONS(CENOTE_CUDA_MEMBER)  // null: there is none
#undef CENOTE_CUDA_MEMBER

  /// Loads it and calls cuInit. Errors: unsupported: there is none, it lacks a function (which is named), or it
  /// refuses.
  [[nodiscard]] static result<std::shared_ptr<const driver>> load(const std::string& library);

  /// The CUDA that it is for, "12.4"; empty when it does not say.
  [[nodiscard]] std::string version() const;
  /// The driver's name of a code, with its number.
  [[nodiscard]] std::string name_of(cu_result code) const;
};

/// Whether this code says that the context is lost for good, and not merely that one call was refused.
[[nodiscard]] bool is_sticky(cu_result code) noexcept;

/// How a code is called in Cenote.
[[nodiscard]] error_code code_of(cu_result code) noexcept;

}  // namespace cenote::cuda
