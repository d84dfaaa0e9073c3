// The session's Unix socket: attach, slabs, re-attach, detach. Nothing here is on the hit path.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "client/deadline_mutex.hpp"
#include "client/slab_map.hpp"
#include "core/error.hpp"
#include "core/instance_spec.hpp"
#include "core/unique_fd.hpp"
#include "memory/index.hpp"
#include "memory/segment.hpp"
#include "memory/version_table.hpp"
#include "transport/local/attach.hpp"
#include "transport/local/socket.hpp"

namespace cenote::client {

using time_point = std::chrono::steady_clock::time_point;

/// What an attach brings.
struct attachment {
  unique_fd socket;
  local::attach_reply ids;
  unique_fd submit_bell;    ///< eventfd: the client rings it
  unique_fd complete_bell;  ///< our end of transport/local/doorbell.hpp: the worker rings it
  memory::segment session;
  memory::index_memory index;
  memory::version_table versions;
};

/// Connects and attaches. Refusals of the node come back as it worded them; a worker that dies meanwhile is waited
/// for until the deadline (node_restarting).
[[nodiscard]] result<attachment> attach_to(const std::string& path, local::attach_request request, time_point until);

/// What a session may be writing, as far as the worker of `epoch` and those before it can have handed out.
struct held_list {
  std::uint64_t epoch = 0;
  std::vector<local::held_block> blocks;
};

/// node_restarting: no worker came before the deadline.
[[nodiscard]] error never_came();

/// The open socket. Thread-safe: one exchange at a time; who waits for another one does so until its own deadline.
class connection {
 public:
  connection(std::string path, unique_fd socket, const local::attach_reply& ids) noexcept;

  /// Number of the descriptor; stays the same over re-attaches.
  [[nodiscard]] int descriptor() const noexcept { return socket_.get(); }
  /// True when the worker's end is gone. A system call.
  [[nodiscard]] bool hung_up() const noexcept;

  /// Maps the slabs `wanted` that are not mapped yet. node_restarting: the worker went away, re-attach and try
  /// again. deadline_exceeded: no answer, or another exchange had the socket.
  result<void> fetch_slabs(const std::vector<std::uint32_t>& wanted, const memory::version_table& versions,
                           slab_map& slabs, time_point until);

  /// Removals of the instance that some other node has not confirmed. Errors: as fetch_slabs().
  result<local::unconfirmed_reply> ask_unconfirmed(time_point deadline);

  /// Introduces this session to a new worker. `closed`: the node does not know the session; node_restarting: no worker
  /// came before the deadline; not_running: no node is there. `closed` also soon after `given_up` becomes true.
  result<void> reattach(const held_list& held, time_point until, const std::atomic<bool>& given_up);

  /// Ends the session at the node.
  result<void> detach(time_point until);

 private:
  result<std::uint32_t> send(int fd, local::frame_type type, std::span<const std::byte> payload, time_point until);
  result<local::frame> exchange(local::frame_type type, std::span<const std::byte> payload, local::frame_type expected,
                                time_point until);
  result<void> fetch_some(const std::vector<std::uint32_t>& wanted, const memory::version_table& versions,
                          slab_map& slabs, time_point until);
  result<unique_fd> introduce(const held_list& what, time_point until, const std::atomic<bool>& given_up);
  [[nodiscard]] error occupied() const;

  std::string path_;
  unique_fd socket_;
  local::attach_reply ids_;
  std::uint32_t next_request_ = 1;
  deadline_mutex mutex_;  ///< all above but the descriptor's number
};

}  // namespace cenote::client
