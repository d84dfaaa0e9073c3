#include "device/cuda/driver.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <array>

namespace cenote::cuda {

namespace {

// Codes after which the next call may succeed: what was asked for could not be. All others, those of later drivers too,
// are taken for the end of the context.
constexpr std::array<cu_result, 31> harmless{
    0,    // SUCCESS
    1,    // INVALID_VALUE
    2,    // OUT_OF_MEMORY
    34,   // STUB_LIBRARY
    100,  // NO_DEVICE
    101,  // INVALID_DEVICE
    200,  // INVALID_IMAGE
    205,  // MAP_FAILED
    206,  // UNMAP_FAILED
    208,  // ALREADY_MAPPED
    209,  // NO_BINARY_FOR_GPU
    218,  // INVALID_PTX
    221,  // JIT_COMPILER_NOT_FOUND
    222,  // UNSUPPORTED_PTX_VERSION
    304,  // OPERATING_SYSTEM
    400,  // INVALID_HANDLE
    500,  // NOT_FOUND
    600,  // NOT_READY
    712,  // HOST_MEMORY_ALREADY_REGISTERED
    713,  // HOST_MEMORY_NOT_REGISTERED
    800,  // NOT_PERMITTED
    801,  // NOT_SUPPORTED
    900,  // STREAM_CAPTURE_UNSUPPORTED
    901,  // STREAM_CAPTURE_INVALIDATED
    902,  // STREAM_CAPTURE_MERGE
    903,  // STREAM_CAPTURE_UNMATCHED
    904,  // STREAM_CAPTURE_UNJOINED
    905,  // STREAM_CAPTURE_ISOLATION
    906,  // STREAM_CAPTURE_IMPLICIT
    907,  // CAPTURED_EVENT
    908,  // STREAM_CAPTURE_WRONG_THREAD
};

template <class Function>
bool find(void* library, const char* name, Function& out, std::string& missing) {
  void* symbol = ::dlsym(library, name);
  out = reinterpret_cast<Function>(symbol);
  if (symbol == nullptr && missing.empty()) missing = name;
  return symbol != nullptr;
}

}  // namespace

result<std::shared_ptr<const driver>> driver::load(const std::string& library) {
  void* handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = ::dlerror();
    return fail(error_code::unsupported, std::string("no CUDA driver: ") + (why == nullptr ? library : why));
  }
  auto made = std::make_shared<driver>();
  std::string missing;
#define CENOTE_CUDA_FIND(name, ...) find(handle, #name, made->name, missing);
  CENOTE_CUDA_FUNCTIONS(CENOTE_CUDA_FIND)
#undef CENOTE_CUDA_FIND
  std::string optional;
#define CENOTE_CUDA_LOOK(name, ...) find(handle, #name, made->name, optional);
  CENOTE_CUDA_OPTIONAL_FUNCTIONS(CENOTE_CUDA_LOOK)
#undef CENOTE_CUDA_LOOK
  if (!missing.empty()) {
    const std::string version = made->version();
    return fail(error_code::unsupported, "the CUDA driver" + (version.empty() ? "" : " for CUDA " + version) + " (" +
                                             library + ") has no " + missing + ": it is too old");
  }
  if (const cu_result code = made->cuInit(0); code != success) {
    return fail(error_code::unsupported, "cuInit: " + made->name_of(code));
  }
  return made;
}

std::string driver::version() const {
  int number = 0;
  if (cuDriverGetVersion == nullptr || cuDriverGetVersion(&number) != success) return {};
  return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10);
}

std::string driver::name_of(cu_result code) const {
  const char* name = nullptr;
  if (cuGetErrorName(code, &name) != success || name == nullptr) name = "unknown";
  return std::string(name) + " (" + std::to_string(code) + ")";
}

bool is_sticky(cu_result code) noexcept {
  return std::ranges::find(harmless, code) == harmless.end();
}

error_code code_of(cu_result code) noexcept {
  switch (code) {
    case 1: return error_code::invalid_argument;
    case 2: return error_code::no_space;
    case 712: return error_code::invalid_argument;
    case 100:
    case 101:
    case 200:
    case 209:
    case 218:
    case 221:
    case 222:
    case 800:
    case 801: return error_code::unsupported;
    default: return error_code::system;
  }
}

}  // namespace cenote::cuda
