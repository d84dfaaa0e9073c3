#include "core/file_lock.hpp"

#include <sys/file.h>

#include <cerrno>
#include <thread>

namespace cenote {

result<bool> lock_file(int descriptor, int mode, const std::string& path, std::chrono::milliseconds patience,
                       const std::function<result<void>()>& while_held) {
  constexpr auto pause = std::chrono::milliseconds(5);
  const auto until = std::chrono::steady_clock::now() + patience;
  while (::flock(descriptor, mode | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) return fail_errno("flock", path);
    if (auto go_on = while_held(); !go_on) return std::unexpected(go_on.error());
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace cenote
