// The two processes between which the bench moves blocks: their networks, a bare socket, and a cluster of two.
#pragma once

#include <caf/all.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "actors/cluster_host.hpp"
#include "commands/bench/peer_path.hpp"
#include "core/endpoint.hpp"
#include "core/unique_fd.hpp"
#include "transport/ucx/network.hpp"

namespace cenote::bench {

inline constexpr std::uint64_t arena_bytes = std::uint64_t{64} << 20;  ///< of a process: what one request moves
inline constexpr std::size_t ping_bytes = 64;
inline constexpr std::chrono::seconds patience{20};

/// Asked of the other process: that many blocks of that size; 0 blocks: send the frame back.
struct block_request {
  std::uint64_t size = 0;
  std::uint64_t count = 0;
};
/// A frame of ping_bytes.
[[nodiscard]] std::vector<std::byte> request_frame(const block_request& what);

// All bytes over a blocking socket; false: the other process ended.
bool send_all(int socket, const void* from, std::size_t bytes);
bool receive_all(int socket, void* into, std::size_t bytes);

/// A network that answers requests, or waits for their answers. Thread-safe but for join().
class peer_side {
 public:
  /// Listens at `host`. Blocks come from `arena` and go there.
  [[nodiscard]] static result<std::unique_ptr<peer_side>> start(const std::string& host, std::byte* arena);

  result<void> join(const endpoint& where, const endpoint& blocks_at);
  result<void> fetch(const block_request& what, bool with_hash);
  /// One after the other, each sent by the network's thread as soon as the one before is back.
  result<void> ping(std::uint64_t count);

  std::unique_ptr<ucx::network> network;

 private:
  explicit peer_side(std::byte* arena) : arena_(arena) {}

  peer::network_events events();
  void hear(peer::link_id from, std::span<const std::byte> frame);
  template <class Change>
  void change(Change what) {
    const std::lock_guard lock(mutex_);
    what();
    changed_.notify_all();
  }
  template <class Condition>
  result<void> wait(Condition until) {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, patience, [&] { return until() || is_lost_; }) && !is_lost_) return {};
    return fail(error_code::deadline_exceeded, "the other process does not answer");
  }

  std::byte* arena_;
  std::atomic<peer::link_id> link_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  bool carries_ = false, echoed_ = false, is_lost_ = false;
  std::atomic<bool> hashes_{false};
  std::atomic<std::uint64_t> pings_left_{0};
  std::atomic<std::uint64_t> landed_{0}, wanted_{0}, sum_{0};
};

/// An actor system with a node's cluster in it.
struct peer_member {
  static constexpr std::chrono::milliseconds suspect_after{800};  ///< its setting: silence after which it is not used

  peer_member() = default;
  peer_member(const peer_member&) = delete;
  peer_member& operator=(const peer_member&) = delete;
  ~peer_member();

  struct system_config : caf::actor_system_config {
    system_config();
  };

  result<void> join(const std::string& name, const std::string& address, const std::string& secret_file,
                    const std::vector<std::string>& seeds);
  /// Of the node named "there"; empty: not known.
  [[nodiscard]] std::string state_of_other();

  system_config config_of_system;
  std::unique_ptr<cluster_host> host;  ///< its thread ran actors of the system, which ends first
  caf::actor_system system{config_of_system};
};

/// What the other process says first.
struct places {
  std::uint16_t socket = 0;
  endpoint where, blocks_at, cluster;
};

/// The other process; ends with this object. Made while this process has one thread.
class other_process {
 public:
  /// `way` is open from here on.
  [[nodiscard]] static result<other_process> start(const peer_path& way);
  other_process(other_process&& other) noexcept
      : at(std::move(other.at)), pid_(std::exchange(other.pid_, -1)), end_(std::move(other.end_)) {}
  other_process& operator=(other_process&&) = delete;
  other_process(const other_process&) = delete;
  other_process& operator=(const other_process&) = delete;
  ~other_process() {
    if (pid_ > 0) kill(SIGKILL);
  }

  void send_signal(int which) const;
  void kill(int with);
  /// User and system time of it and of this process.
  [[nodiscard]] double cpu_seconds() const;

  places at;

 private:
  other_process(pid_t pid, unique_fd end) : pid_(pid), end_(std::move(end)) {}
  result<void> read_places(const unique_fd& from);

  pid_t pid_;
  unique_fd end_;
};

/// A connection to its bare socket.
[[nodiscard]] result<unique_fd> connect_to(const std::string& host, std::uint16_t port);

}  // namespace cenote::bench
