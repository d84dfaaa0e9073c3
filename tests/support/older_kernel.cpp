// Preloaded into a node: makes the kernel an older one, as far as the processes of its clients go. $CENOTE_TEST_KERNEL:
//   6.4   without pidfds of peers
//   6.8   with them, but without a file system that numbers them
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>

namespace {

constexpr int so_peerpidfd = 77;
constexpr auto pidfs_magic = 0x50494446;

std::string_view version() {
  const char* const given = std::getenv("CENOTE_TEST_KERNEL");
  return given == nullptr ? "" : given;
}

}  // namespace

extern "C" int getsockopt(int fd, int level, int name, void* value, socklen_t* size) noexcept {
  if (level == SOL_SOCKET && name == so_peerpidfd && version() == "6.4") {
    errno = ENOPROTOOPT;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_getsockopt, fd, level, name, value, size));
}

extern "C" int fstatfs(int fd, struct statfs* system) noexcept {
  const int done = static_cast<int>(::syscall(SYS_fstatfs, fd, system));
  if (done == 0 && system->f_type == pidfs_magic && !version().empty()) system->f_type = 0;
  return done;
}
