// The node's Unix socket: listening, connecting, knowing the peer, and whole frames with descriptors.
// Plain system calls: the client library links this file too.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "transport/local/frame.hpp"

namespace cenote::local {

/// When a blocking call gives up with deadline_exceeded.
using deadline = std::chrono::steady_clock::time_point;

/// One received frame. The header has been checked: magic, version, and size == payload.size().
struct frame {
  frame_header header;
  std::vector<std::byte> payload;
  std::vector<unique_fd> fds;  ///< close-on-exec, in the sender's order
};

/// Who is at the other end, as the kernel recorded it when the peer connected.
struct peer_credentials {
  pid_t pid = 0;  ///< for display; 0: the process lives in a PID namespace that this one does not see
  uid_t uid = 0;
  gid_t gid = 0;
};

/// All functions below are thread-safe as far as different descriptors go; on one descriptor, one sender and one
/// receiver at a time.

/// Binds and listens at `path` (mode 0666: who may attach is decided by credentials). Makes the directory (0755) if
/// it is missing. A socket left by a dead node is replaced. Errors: limit_exceeded when a node
/// answers there, invalid_argument when the path is too long, is not a socket, or another kind of program's, system.
[[nodiscard]] result<unique_fd> listen_at(const std::string& path);
/// Whether listen_at() would do, as far as that shows without a change that lasts. Errors: as listen_at().
[[nodiscard]] result<void> check_place(const std::string& path);

/// The next waiting connection; nothing when none waits. The connection is close-on-exec and non-blocking.
[[nodiscard]] result<std::optional<unique_fd>> accept_one(int listener);

/// Connects. Errors: not_running (the message says how to start a node), permission_denied, deadline_exceeded.
[[nodiscard]] result<unique_fd> connect_to(const std::string& path, deadline until);

/// The peer of a connection.
[[nodiscard]] result<peer_credentials> credentials_of(int fd);

/// A pidfd of the peer: readable once the process is dead. `closed` when it is dead already. Before Linux 6.5 the
/// kernel finds it by its number alone: permission_denied when the peer has none, since its death could not be noticed.
[[nodiscard]] result<unique_fd> pidfd_of(int fd);

/// A process as the kernel attests it. Processes of other PID namespaces have no numbers, and numbers are used again:
/// its serial does neither.
struct process_identity {
  std::uint64_t serial = 0;  ///< of its pidfd: no other process since the boot has it; 0: a kernel before 6.9, without
  peer_credentials credentials{};
  bool has_ended = false;
};

[[nodiscard]] process_identity identify(int pidfd, const peer_credentials& credentials) noexcept;

/// Whether `peer`, which is connected now, may be the process `earlier`. With serials the answer is certain. Without
/// them `peer` needs the number of a process that still lives. Where neither has a number, user and group are compared:
/// then it takes a secret, too.
[[nodiscard]] bool may_be_one_process(const process_identity& earlier, const process_identity& peer) noexcept;

/// Sends one frame; blocks until `until` while the peer's queue is full. `header.size` is set here.
/// Errors: closed (the peer is gone), deadline_exceeded, limit_exceeded (payload, descriptors, or more descriptors
/// in flight than this user may have), system.
[[nodiscard]] result<void> send_frame(int fd, frame_header header, std::span<const std::byte> payload,
                                      std::span<const int> fds, deadline until);

/// Sends one frame if the peer's queue has room; false when it has none.
[[nodiscard]] result<bool> try_send_frame(int fd, frame_header header, std::span<const std::byte> payload,
                                          std::span<const int> fds);

/// Receives one frame. Errors: closed (end of stream), deadline_exceeded, malformed (magic, size, truncation),
/// limit_exceeded (this process is out of descriptors), protocol_mismatch (the message has both versions), system.
[[nodiscard]] result<frame> receive_frame(int fd, deadline until);

/// The frame that waits, or nothing.
[[nodiscard]] result<std::optional<frame>> try_receive_frame(int fd);

/// A text of any length up to max_text as several frames with flag_more on all but the last.
[[nodiscard]] result<void> send_text(int fd, frame_header header, std::string_view text, deadline until);

/// The text whose first frame is `first`; receives the rest. limit_exceeded above max_text.
[[nodiscard]] result<std::string> receive_text(int fd, frame first, deadline until);

inline constexpr std::size_t max_payload = max_frame - sizeof(frame_header);
inline constexpr std::size_t max_text = 16U << 20U;

/// A header that answers `request`: its id, and its minor version, so that an older client understands the reply.
[[nodiscard]] frame_header reply_to(const frame_header& request, frame_type type) noexcept;

/// The payload of a `failure` frame, and back. A payload that makes no sense decodes as `malformed`.
[[nodiscard]] std::vector<std::byte> encode_failure(const error& why);
[[nodiscard]] error decode_failure(std::span<const std::byte> payload);

namespace detail {

/// One packet of a SEQPACKET socket before anybody looked at its bytes.
struct packet {
  std::vector<std::byte> bytes;
  std::vector<unique_fd> fds;
  bool truncated = false;  ///< bytes were lost
  bool lost_fds = false;   ///< descriptors were lost: too many, or this process may open no more
};

/// The waiting packet; nothing when none waits. `closed` at the end of the stream.
[[nodiscard]] result<std::optional<packet>> try_receive_packet(int fd);

/// Sends head and body as one packet; false when the peer's queue is full. Errors as send_frame.
[[nodiscard]] result<bool> try_send_packet(int fd, std::span<const std::byte> head, std::span<const std::byte> body,
                                           std::span<const int> fds);

/// Waits for `events` (POLLIN, POLLOUT); deadline_exceeded when the time is over.
[[nodiscard]] result<void> wait_for(int fd, short events, deadline until);

}  // namespace detail

}  // namespace cenote::local
