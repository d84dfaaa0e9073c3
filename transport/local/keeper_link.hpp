// The worker's side of the link to its keeper.
//
// What a worker must do, beside this class:
// - It starts with SIGTERM, SIGINT, SIGHUP and SIGUSR2 blocked, and reads them from a signalfd (block them still in
//   every thread). SIGTERM: drain and exit 0 within 10 s. SIGHUP: reload. SIGUSR2: hand over, i.e. leave every
//   segment as it is and exit 0 at once. SIGINT is the keeper's business (a terminal sends it to both): ignore it.
// - When fd() hangs up and keeper_is_dead(): drain, tell the clients, and call shutdown(2) on the listening socket, so
//   that a new node may take the path at once. If the keeper lives it gave this worker up: exit without any of that
//   (the listening socket is shared, and a shutdown is for ever).
// - An exit status of 2 before ready() says that the configuration can never work: the keeper gives up at once.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/unique_fd.hpp"
#include "transport/local/registry.hpp"

namespace cenote::local {

/// The interval of a worker's heartbeats, when it is killed after `hang_timeout` (above 0) without one.
[[nodiscard]] constexpr std::chrono::milliseconds beat_of(std::chrono::milliseconds hang_timeout) noexcept {
  return std::clamp(hang_timeout / 6, std::chrono::milliseconds(20), std::chrono::milliseconds(5000));
}

/// What a worker gets from its keeper.
struct handover {
  std::uint64_t epoch = 0;                             ///< 1 for a node's first worker, +1 for each later one
  std::chrono::system_clock::time_point node_started;  ///< when the node (not the worker) started
  std::uint32_t restarts = 0;                          ///< workers that died without being asked to
  unique_fd listener;                                  ///< non-blocking
  std::vector<registry_entry> entries;                 ///< in order of (kind, id)
};

/// Thread-safe: calls from several threads are served one after the other.
class keeper_link {
 public:
  using duration = std::chrono::steady_clock::duration;
  static constexpr duration default_limit = std::chrono::seconds(5);

  /// Takes the descriptor that --keeper-fd names and makes it close-on-exec.
  explicit keeper_link(unique_fd fd) noexcept;

  /// The first call on a link. Errors: closed, malformed, layout_mismatch, deadline_exceeded, limit_exceeded.
  [[nodiscard]] result<handover> receive_handover(duration limit = std::chrono::seconds(30));

  /// Gives the keeper copies of the descriptors; when it returns, they outlive this worker. An entry with the same
  /// kind and id is replaced. Errors: limit_exceeded, closed, deadline_exceeded (the keeper may hold it all the same).
  [[nodiscard]] result<void> put(entry_kind kind, std::uint64_t id, std::span<const std::byte> meta,
                                 std::span<const int> fds, duration limit = default_limit);
  [[nodiscard]] result<void> put(const registry_entry& entry, duration limit = default_limit);

  /// Has the keeper forget an entry. Dropping what it does not hold is no error.
  [[nodiscard]] result<void> drop(entry_kind kind, std::uint64_t id, duration limit = default_limit);

  /// Says that clients are being served. Call it once.
  [[nodiscard]] result<void> ready(duration limit = default_limit);

  /// Asks for an upgrade of keeper and worker. Success: SIGUSR2 is on its way. An error has the keeper's reason, and
  /// nothing changes.
  [[nodiscard]] result<void> ask_upgrade(duration limit = std::chrono::seconds(15));

  /// The listening socket, if it is another one since the handover or the last call: the keeper looks whether its file
  /// is there, and makes it again if not.
  [[nodiscard]] result<std::optional<unique_fd>> renewed_listener(duration limit = default_limit);

  /// Tells the keeper why this worker is about to exit. Best effort, never blocks for long.
  void fatal(std::string_view reason) noexcept;

  /// Tells the keeper that this worker lives. `silence`: for how long somebody in it has not answered, and who that is.
  /// Best effort, never blocks.
  void alive(std::chrono::milliseconds silence, std::string_view who) noexcept;

  /// True once the process that started this worker is gone.
  [[nodiscard]] bool keeper_is_dead() const noexcept;

  /// Readable or hung up only when the keeper is dead or gave this worker up, once the handover is done. For poll().
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  result<link_packet> receive(deadline until);
  /// The acknowledgement.
  result<link_packet> exchange(link_header header, std::span<const std::byte> payload, std::span<const int> fds,
                               duration limit);
  result<void> call(link_header header, std::span<const std::byte> payload, std::span<const int> fds, duration limit);

  std::mutex mutex_;
  unique_fd fd_;
  pid_t keeper_;
  std::uint32_t sequence_ = 0;
  std::uint64_t listener_number_ = 0;
};

}  // namespace cenote::local
