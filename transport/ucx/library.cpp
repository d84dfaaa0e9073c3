#include "transport/ucx/library.hpp"

#include <dlfcn.h>

#include <cstdlib>

#include "transport/ucx/socket_numbers.hpp"

namespace cenote::ucx {

namespace {

constexpr auto file_name = "libucp.so.0";

template <class Function>
bool find(void* handle, const char* name, Function*& out) {
  out = reinterpret_cast<Function*>(::dlsym(handle, name));
  return out != nullptr;
}

}  // namespace

result<std::shared_ptr<const library>> load_library(const environment& variables) {
  use_own_socket_calls();
  if (::dlopen(file_name, RTLD_NOW | RTLD_NOLOAD) == nullptr) {
    for (const auto& [name, value] : variables) ::setenv(name.c_str(), value.c_str(), 1);
  }
  // Never closed: its threads and handlers at exit may still be there.
  void* const handle = ::dlopen(file_name, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr)
    return fail(error_code::unsupported,
                std::string("UCX cannot be loaded: ") + ::dlerror() + "; install the package libucx0");
  const auto made = std::make_shared<library>();
#define CENOTE_UCX_FIND(name)                                                               \
  if (!find(handle, #name, made->name))                                                     \
    return fail(error_code::unsupported, std::string(file_name) + " has no function " #name \
                                                                  "; Cenote needs UCX "     \
                                                                  "1.13 or later");
  CENOTE_UCX_FUNCTIONS(CENOTE_UCX_FIND)
#undef CENOTE_UCX_FIND
  return std::shared_ptr<const library>(made);
}

}  // namespace cenote::ucx
