#include "config/log_stream.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>

namespace cenote::config {

namespace {

constexpr int most_waits = 16;  // for one line: of a reader that takes a little now and then

}  // namespace

log_stream::log_stream(int descriptor) : descriptor_(descriptor) {
  struct stat status {};
  if (::fstat(descriptor, &status) != 0) return;
  if (S_ISSOCK(status.st_mode)) {
    kind_ = descriptor_kind::socket;
  } else if (S_ISFIFO(status.st_mode) || S_ISCHR(status.st_mode)) {
    const auto path = "/proc/self/fd/" + std::to_string(descriptor);
    description_.reset(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
    kind_ = description_ ? descriptor_kind::reopened : descriptor_kind::descriptor;
  }
}

void log_stream::write(std::string_view line) {
  std::string_view rest = line;
  if (drain_rest() && drain(rest)) return;
  if (rest.size() == line.size()) {
    ++dropped_;
  } else {
    rest_.assign(rest);
  }
}

bool log_stream::is_open() {
  return drain_rest() && (kind_ == descriptor_kind::plain || has_room(0));
}

/// Ends the line that was begun, if there is one.
bool log_stream::drain_rest() {
  std::string_view rest = rest_;
  const bool is_drained = drain(rest);
  rest_.erase(0, rest_.size() - rest.size());
  return is_drained;
}

/// Writes all of it, or as much as the reader has room for.
bool log_stream::drain(std::string_view& rest) {
  int waits = 0;
  while (!rest.empty()) {
    const long written = write_some(rest);
    if (written > 0) {
      rest.remove_prefix(static_cast<std::size_t>(written));
      is_stuck_ = false;
      continue;
    }
    if (written < 0 && errno == EINTR) continue;
    const bool is_full = written < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    if (is_full && !is_stuck_ && ++waits < most_waits && has_room(patience)) continue;
    is_stuck_ = true;
    return false;
  }
  return true;
}

long log_stream::write_some(std::string_view bytes) const {
  switch (kind_) {
    case descriptor_kind::plain: return ::write(descriptor_, bytes.data(), bytes.size());
    case descriptor_kind::reopened: return ::write(description_.get(), bytes.data(), bytes.size());
    case descriptor_kind::socket: return ::send(descriptor_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    case descriptor_kind::descriptor: break;
  }
  if (!has_room(0)) {
    errno = EAGAIN;
    return -1;
  }
  return ::write(descriptor_, bytes.data(), std::min<std::size_t>(bytes.size(), PIPE_BUF));
}

bool log_stream::has_room(int milliseconds) const {
  pollfd item{descriptor_, POLLOUT, 0};
  return ::poll(&item, 1, milliseconds) > 0;
}

}  // namespace cenote::config
