#include "core/unique_fd.hpp"

#include <fcntl.h>

namespace cenote {

result<unique_fd> unique_fd::duplicate() const {
  const int copy = ::fcntl(fd_, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) return fail_errno("fcntl(F_DUPFD_CLOEXEC)");
  return unique_fd(copy);
}

}  // namespace cenote
