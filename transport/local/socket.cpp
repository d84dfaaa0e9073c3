#include "transport/local/socket.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "core/byte_io.hpp"
#include "core/folder_check.hpp"
#include "core/text.hpp"

namespace cenote::local {

namespace {

using std::chrono::steady_clock;

// Since Linux 6.5; older headers lack it.
constexpr int so_peerpidfd = 77;
// Of statfs(): pidfds have a file system of their own since Linux 6.9.
constexpr decltype(statfs::f_type) pidfs_magic = 0x50494446;
constexpr int listen_backlog = 1024;
// The kernel makes the file of a socket before the socket listens and before its permissions are set; a busy machine
// may stop a starting node in between. A socket file refuses for good only if it is older.
constexpr std::chrono::seconds start_of_listening{1};

// Room for the largest set of descriptors, aligned as the kernel wants it.
struct alignas(cmsghdr) control_buffer {
  std::array<std::byte, CMSG_SPACE(sizeof(int) * max_frame_fds)> bytes;
};

result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path) {
    return fail(error_code::invalid_argument,
                "socket path '" + path + "' must have 1 to " + std::to_string(sizeof address.sun_path - 1) + " bytes");
  }
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

const sockaddr* generic(const sockaddr_un& address) {
  return reinterpret_cast<const sockaddr*>(&address);
}

result<unique_fd> new_socket(int flags) {
  unique_fd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!fd) return fail_errno("socket");
  return fd;
}

/// The obstacle at a path where a socket is to be.
enum class socket_place : std::uint8_t { free, dead_socket };

/// Whether a new socket may take the place of what is at `path`: a live one, or another kind of file, is an error.
result<socket_place> check_way(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (::lstat(path.c_str(), &info) != 0) {
    if (errno == ENOENT) return socket_place::free;
    return fail_errno("stat", path);
  }
  // connect() to a plain file says "refused" as well, and files of the user are not ours to delete.
  if (!S_ISSOCK(info.st_mode)) {
    return fail(error_code::invalid_argument, path + " exists and is not a socket; choose another node.socket");
  }
  auto probe = new_socket(SOCK_NONBLOCK);
  if (!probe) return std::unexpected(std::move(probe.error()));
  if (::connect(probe->get(), generic(address), sizeof address) == 0 || errno == EAGAIN) {
    return fail(error_code::limit_exceeded, "a node already runs at " + path);
  }
  if (errno == EPROTOTYPE) {
    return fail(error_code::invalid_argument, "another program listens at " + path + "; choose another node.socket");
  }
  if (errno != ECONNREFUSED && errno != ENOENT) return fail_errno("connect", path);
  return socket_place::dead_socket;
}

error missing_node(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) == 0 && !S_ISSOCK(status.st_mode)) {
    return {error_code::not_running, path + " is no socket; give the one that `cenote node` listens at (node.socket)"};
  }
  return {error_code::not_running, "no node at " + path + "; start one with `cenote node`"};
}

bool is_fresh_socket(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0 || !S_ISSOCK(status.st_mode)) return false;
  const auto changed = std::chrono::seconds(status.st_ctim.tv_sec) + std::chrono::nanoseconds(status.st_ctim.tv_nsec);
  const auto age = std::chrono::system_clock::now().time_since_epoch() - changed;
  return age < start_of_listening && age > -start_of_listening;
}

std::chrono::nanoseconds time_left(deadline until) {
  // A deadline of time_point::max() means "for ever": the difference would overflow.
  const auto now = steady_clock::now();
  return until <= now ? std::chrono::nanoseconds(0)
                      : std::min<std::chrono::nanoseconds>(until - now, std::chrono::hours(24));
}

// Bounds a blocking connect(): on Unix sockets the kernel honours the send time-out there.
void bound_connect(int fd, deadline until) {
  const auto left = std::max<std::chrono::nanoseconds>(time_left(until), std::chrono::milliseconds(1));
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(left).count();
  timeval limit{};
  limit.tv_sec = us / 1'000'000;
  limit.tv_usec = us % 1'000'000;
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

std::string version_text(std::uint16_t major, std::uint16_t minor) {
  return std::to_string(major) + "." + std::to_string(minor);
}

result<frame> checked(detail::packet&& got) {
  if (got.truncated) return fail(error_code::malformed, "a frame is larger than 64 KiB");
  if (got.lost_fds) {
    return fail(error_code::limit_exceeded,
                "the descriptors of a frame were lost: they were more than " + std::to_string(max_frame_fds) +
                    ", or this process may open no more files; raise its limit (`ulimit -n`)");
  }
  if (got.bytes.size() < sizeof(frame_header)) {
    return fail(error_code::malformed, "a frame of " + std::to_string(got.bytes.size()) + " bytes has no header");
  }
  frame out;
  std::memcpy(&out.header, got.bytes.data(), sizeof out.header);
  if (out.header.magic != frame_magic) return fail(error_code::malformed, "a frame has another magic number");
  if (out.header.major != protocol_major || out.header.minor > protocol_minor) {
    return fail(error_code::protocol_mismatch,
                "the other side speaks protocol " + version_text(out.header.major, out.header.minor) + ", this side " +
                    version_text(protocol_major, protocol_minor) +
                    "; update the older of the two (a client may be older than its node, not newer)");
  }
  if (out.header.size != got.bytes.size() - sizeof(frame_header)) {
    return fail(error_code::malformed, "a frame's size does not match its header");
  }
  got.bytes.erase(got.bytes.begin(), got.bytes.begin() + sizeof(frame_header));
  out.payload = std::move(got.bytes);
  out.fds = std::move(got.fds);
  return out;
}

// Takes every descriptor out of the control data, so that none leaks whatever the bytes say.
std::vector<unique_fd> take_descriptors(msghdr& message) {
  std::vector<unique_fd> fds;
  for (cmsghdr* item = CMSG_FIRSTHDR(&message); item != nullptr; item = CMSG_NXTHDR(&message, item)) {
    if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (item->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(item) + i * sizeof(int), sizeof fd);
      fds.emplace_back(fd);
    }
  }
  return fds;
}

}  // namespace

namespace detail {

result<void> wait_for(int fd, short events, deadline until) {
  for (;;) {
    const auto left = time_left(until);
    timespec limit{};
    limit.tv_sec = std::chrono::duration_cast<std::chrono::seconds>(left).count();
    limit.tv_nsec = (left % std::chrono::seconds(1)).count();
    pollfd item{fd, events, 0};
    const int ready = ::ppoll(&item, 1, &limit, nullptr);
    if (ready > 0) return {};
    if (ready == 0) {
      if (steady_clock::now() >= until) return fail(error_code::deadline_exceeded, "no answer before the deadline");
      continue;
    }
    if (errno != EINTR) return fail_errno("poll");
  }
}

result<std::optional<packet>> try_receive_packet(int fd) {
  std::array<std::byte, max_frame> buffer;  // left uninitialised: the kernel writes it
  control_buffer control;
  iovec piece{buffer.data(), buffer.size()};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes.data();
  message.msg_controllen = control.bytes.size();
  ssize_t size = 0;
  do {
    size = ::recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (size < 0 && errno == EINTR);
  if (size < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
    if (errno == ECONNRESET) return fail(error_code::closed, "the other side is gone");
    return fail_errno("recvmsg");
  }
  packet out;
  out.fds = take_descriptors(message);
  out.truncated = (message.msg_flags & MSG_TRUNC) != 0;
  out.lost_fds = (message.msg_flags & MSG_CTRUNC) != 0;
  // A SEQPACKET socket cannot tell an empty packet from the end; no frame of ours is empty.
  if (size == 0) return fail(error_code::closed, "the other side closed the connection");
  out.bytes.assign(buffer.begin(), buffer.begin() + size);
  return out;
}

result<bool> try_send_packet(int fd, std::span<const std::byte> head, std::span<const std::byte> body,
                             std::span<const int> fds) {
  std::array<iovec, 2> pieces{iovec{const_cast<std::byte*>(head.data()), head.size()},
                              iovec{const_cast<std::byte*>(body.data()), body.size()}};
  control_buffer control{};
  msghdr message{};
  message.msg_iov = pieces.data();
  message.msg_iovlen = body.empty() ? 1 : 2;
  if (!fds.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* item = CMSG_FIRSTHDR(&message);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(item), fds.data(), fds.size_bytes());
  }
  ssize_t sent = 0;
  do {
    sent = ::sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return true;
  if (errno == EAGAIN || errno == EWOULDBLOCK) return false;
  if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN || errno == ECONNREFUSED) {
    return fail(error_code::closed, "the other side is gone");
  }
  if (errno == ETOOMANYREFS) {
    return fail(error_code::limit_exceeded, "too many descriptors wait in sockets; raise the limit of open files");
  }
  return fail_errno("sendmsg");
}

}  // namespace detail

result<void> check_place(const std::string& path) {
  const auto address = address_of(path);
  if (!address) return std::unexpected(address.error());
  const auto usable = check_folder(std::filesystem::path(path).parent_path());
  if (!usable) return usable;
  const auto way = check_way(path, *address);
  return way ? result<void>() : std::unexpected(way.error());
}

result<unique_fd> listen_at(const std::string& path) {
  const auto address = address_of(path);
  if (!address) return std::unexpected(address.error());
  if (const auto parent = std::filesystem::path(path).parent_path(); !parent.empty()) {
    std::error_code why;
    // Only a directory made here gets 0755; an existing one keeps what its owner chose.
    if (std::filesystem::create_directories(parent, why) && ::chmod(parent.c_str(), 0755) != 0) {
      return fail_errno("chmod", parent.native());
    }
    if (why) return fail_errno(why.value(), "mkdir", parent.native());
  }
  const auto way = check_way(path, *address);
  if (!way) return std::unexpected(way.error());
  // Only what was seen to be dead: another node may have taken a free path meanwhile.
  if (*way == socket_place::dead_socket && ::unlink(path.c_str()) != 0 && errno != ENOENT)
    return fail_errno("unlink", path);
  auto fd = new_socket(SOCK_NONBLOCK);
  if (!fd) return fd;
  if (::bind(fd->get(), generic(*address), sizeof *address) != 0) return fail_errno("bind", path);
  if (::listen(fd->get(), listen_backlog) != 0) return fail_errno("listen", path);
  if (::chmod(path.c_str(), 0666) != 0) return fail_errno("chmod", path);
  return fd;
}

result<std::optional<unique_fd>> accept_one(int listener) {
  for (;;) {
    unique_fd fd(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) return fd;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::nullopt;
    if (errno != EINTR && errno != ECONNABORTED) return fail_errno("accept");
  }
}

result<unique_fd> connect_to(const std::string& path, deadline until) {
  const auto address = address_of(path);
  if (!address) return std::unexpected(address.error());
  auto fd = new_socket(0);
  if (!fd) return fd;
  const auto patience = std::min(until, steady_clock::now() + start_of_listening);
  for (;;) {
    bound_connect(fd->get(), until);
    if (::connect(fd->get(), generic(*address), sizeof *address) == 0) return fd;
    const int why = errno;
    if ((why == ECONNREFUSED || why == EACCES) && steady_clock::now() < patience && is_fresh_socket(path)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      continue;
    }
    switch (why) {
      case EINTR:
        if (steady_clock::now() < until) continue;
        [[fallthrough]];
      case EAGAIN: return fail(error_code::deadline_exceeded, "the node at " + path + " accepts no connection");
      case ENOENT:
      case ECONNREFUSED: return std::unexpected(missing_node(path));
      case EACCES:
      case EPERM:
        return fail(error_code::permission_denied,
                    "this user may not open " + path + "; its directory must let the user in");
      case EPROTOTYPE: return fail(error_code::not_running, "another program than Cenote listens at " + path);
      default: return fail_errno(why, "connect", path);
    }
  }
}

result<peer_credentials> credentials_of(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return fail_errno("getsockopt: SO_PEERCRED");
  return peer_credentials{peer.pid, peer.uid, peer.gid};
}

result<unique_fd> pidfd_of(int fd) {
  int pidfd = -1;
  socklen_t size = sizeof pidfd;
  if (::getsockopt(fd, SOL_SOCKET, so_peerpidfd, &pidfd, &size) == 0) return unique_fd(pidfd);
  // EINVAL: of a process that was reaped, by the first kernels that have the option.
  if (errno == ESRCH || errno == ENODATA || errno == EINVAL)
    return fail(error_code::closed, "the peer process is gone");
  if (errno != ENOPROTOOPT) return fail_errno("getsockopt: SO_PEERPIDFD");
  const auto peer = credentials_of(fd);
  if (!peer) return std::unexpected(peer.error());
  if (peer->pid == 0) {
    return fail(error_code::permission_denied,
                "the process lives in a PID namespace that the node cannot see, which takes Linux 6.5; run the node in "
                "the host's PID namespace, or the engine's container with the node's (docker: --pid=host or "
                "--pid=container:NODE, Kubernetes: hostPID or shareProcessNamespace)");
  }
  // The C library's wrapper cannot be linked from C++ before glibc 2.37.
  unique_fd opened(static_cast<int>(::syscall(SYS_pidfd_open, peer->pid, 0)));
  if (opened) return opened;
  if (errno == ESRCH) return fail(error_code::closed, "the peer process is gone");
  return fail_errno("pidfd_open");
}

process_identity identify(int pidfd, const peer_credentials& credentials) noexcept {
  process_identity made{.credentials = credentials};
  struct statfs system {};
  struct stat file {};
  // Pidfds of older kernels are on a file system that has one inode for all.
  const bool has_serial = ::fstatfs(pidfd, &system) == 0 && system.f_type == pidfs_magic && ::fstat(pidfd, &file) == 0;
  if (has_serial) made.serial = file.st_ino;
  pollfd process{pidfd, POLLIN, 0};
  made.has_ended = ::poll(&process, 1, 0) == 1;
  return made;
}

bool may_be_one_process(const process_identity& earlier, const process_identity& peer) noexcept {
  if (earlier.serial != 0 || peer.serial != 0) return earlier.serial == peer.serial;
  if (earlier.has_ended) return false;
  const peer_credentials& one = earlier.credentials;
  const peer_credentials& other = peer.credentials;
  if (one.pid != 0 || other.pid != 0) return one.pid == other.pid;
  return one.uid == other.uid && one.gid == other.gid;
}

result<bool> try_send_frame(int fd, frame_header header, std::span<const std::byte> payload, std::span<const int> fds) {
  if (payload.size() > max_payload) {
    return fail(error_code::limit_exceeded, "a frame holds at most " + std::to_string(max_payload) + " bytes, not " +
                                                std::to_string(payload.size()));
  }
  if (fds.size() > max_frame_fds) {
    return fail(error_code::limit_exceeded, "a frame carries at most " + std::to_string(max_frame_fds) +
                                                " descriptors, not " + std::to_string(fds.size()));
  }
  header.size = static_cast<std::uint32_t>(payload.size());
  return detail::try_send_packet(fd, std::as_bytes(std::span(&header, 1)), payload, fds);
}

result<void> send_frame(int fd, frame_header header, std::span<const std::byte> payload, std::span<const int> fds,
                        deadline until) {
  for (;;) {
    const auto sent = try_send_frame(fd, header, payload, fds);
    if (!sent) return std::unexpected(sent.error());
    if (*sent) return {};
    if (auto room = detail::wait_for(fd, POLLOUT, until); !room) return room;
  }
}

result<std::optional<frame>> try_receive_frame(int fd) {
  auto got = detail::try_receive_packet(fd);
  if (!got) return std::unexpected(std::move(got.error()));
  if (!*got) return std::nullopt;
  auto out = checked(std::move(**got));
  if (!out) return std::unexpected(std::move(out.error()));
  return std::move(*out);
}

result<frame> receive_frame(int fd, deadline until) {
  for (;;) {
    auto got = try_receive_frame(fd);
    if (!got) return std::unexpected(std::move(got.error()));
    if (*got) return std::move(**got);
    if (auto ready = detail::wait_for(fd, POLLIN, until); !ready) return std::unexpected(std::move(ready.error()));
  }
}

result<void> send_text(int fd, frame_header header, std::string_view text, deadline until) {
  if (text.size() > max_text) return fail(error_code::limit_exceeded, "a message is longer than 16 MiB");
  for (;;) {
    const auto piece = text.substr(0, max_payload);
    text.remove_prefix(piece.size());
    header.flags = static_cast<std::uint16_t>(text.empty() ? header.flags & ~flag_more : header.flags | flag_more);
    if (auto sent = send_frame(fd, header, std::as_bytes(std::span(piece)), {}, until); !sent) return sent;
    if (text.empty()) return {};
  }
}

result<std::string> receive_text(int fd, frame first, deadline until) {
  std::string text;
  for (frame piece = std::move(first);;) {
    if (text.size() + piece.payload.size() > max_text) {
      return fail(error_code::limit_exceeded, "a message is longer than 16 MiB");
    }
    text.append(reinterpret_cast<const char*>(piece.payload.data()), piece.payload.size());
    if ((piece.header.flags & flag_more) == 0) return text;
    auto next = receive_frame(fd, until);
    if (!next) return std::unexpected(std::move(next.error()));
    if (next->header.type != piece.header.type || next->header.request != piece.header.request) {
      return fail(error_code::malformed, "a frame of another message came in the middle of a text");
    }
    piece = std::move(*next);
  }
}

frame_header reply_to(const frame_header& request, frame_type type) noexcept {
  frame_header header;
  header.minor = std::min(request.minor, protocol_minor);
  header.type = type;
  header.request = request.request;
  return header;
}

std::vector<std::byte> encode_failure(const error& why) {
  byte_writer out;
  out.put(static_cast<std::uint16_t>(why.code()));
  const std::string text = printable(why.message());  // it may quote what a client sent
  out.put_text(cut_text(text, max_payload / 2));
  return std::move(out).take();
}

error decode_failure(std::span<const std::byte> payload) {
  byte_reader in(payload);
  const auto code = in.get<std::uint16_t>();
  auto message = in.get_text();
  if (!in.ok() || code == 0 || code > static_cast<std::uint16_t>(error_code::internal)) {
    return {error_code::malformed, "the node refused, for a reason that this version does not know: " + message};
  }
  return {static_cast<error_code>(code), std::move(message)};
}

}  // namespace cenote::local
