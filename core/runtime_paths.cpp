#include "core/runtime_paths.hpp"

#include <unistd.h>

#include <cstdlib>

namespace cenote {

std::string default_runtime_dir() {
  const char* const xdg = std::getenv("XDG_RUNTIME_DIR");
  if (xdg != nullptr && *xdg != '\0') return std::string(xdg) + "/cenote";
  const auto uid = ::geteuid();
  return uid == 0 ? "/run/cenote" : "/tmp/cenote-" + std::to_string(uid);
}

std::string socket_in(const std::string& runtime_dir) {
  return runtime_dir + "/cenote.sock";
}

}  // namespace cenote
